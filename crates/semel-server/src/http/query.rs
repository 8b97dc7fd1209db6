//! The parameters behind a `?`: each known, each once unless it is a list.

use std::fmt::Display;

use percent_encoding::percent_decode_str;

use super::problem::Problem;

/// What was said behind the `?`.
#[derive(Debug)]
pub(super) struct Parameters(Vec<(String, String)>);

impl Parameters {
    pub(super) fn read(query: Option<&str>) -> Result<Self, Problem> {
        let pairs = query
            .unwrap_or_default()
            .split('&')
            .filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decoded(name)?, decoded(value)?))
        });
        Ok(Self(pairs.collect::<Result<_, Problem>>()?))
    }

    /// Takes all values of a parameter; commas part them as well.
    pub(super) fn many(&mut self, name: &str) -> Vec<String> {
        let taken = self.0.extract_if(.., |(known, _)| known == name);
        let values = taken.map(|(_, value)| value).collect::<Vec<_>>();
        let words = values.iter().flat_map(|value| value.split(','));
        words.map(str::to_owned).collect()
    }

    /// Takes the value of a parameter.
    pub(super) fn one(&mut self, name: &str) -> Result<Option<String>, Problem> {
        let mut taken = self.0.extract_if(.., |(known, _)| known == name);
        let value = taken.next().map(|(_, value)| value);
        if taken.next().is_some() {
            return Err(Problem::input(format!("`{name}` is given twice")));
        }
        Ok(value)
    }

    /// Takes and reads the value of a parameter.
    pub(super) fn parsed<T, E: Display>(
        &mut self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Problem> {
        let value = self.one(name)?;
        let parsed = value.as_deref().map(parse).transpose();
        parsed.map_err(|error| Problem::input(format!("{name}: {error}")))
    }

    /// Refuses what nobody took: a filter that is overlooked would show too much.
    pub(super) fn done(self) -> Result<(), Problem> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(Problem::input(format!("there is no parameter `{name}`"))
                .hint("/openapi.json says what each call takes")),
        }
    }
}

fn decoded(text: &str) -> Result<String, Problem> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    let decoded = decoded.map_err(|_| Problem::input("the query is not UTF-8"))?;
    Ok(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Parameters {
        Parameters::read(Some(query)).expect("it can be read")
    }

    #[test]
    fn parameters_are_decoded_and_taken_once() {
        let mut asked = read("name=a+b%2Bc&state=dead&state=doubtful,failed&");
        assert_eq!(asked.one("name").ok(), Some(Some("a b+c".to_owned())));
        assert_eq!(asked.many("state"), ["dead", "doubtful", "failed"]);
        assert!(asked.done().is_ok());
    }

    #[test]
    fn what_is_given_twice_or_unknown_is_refused() {
        assert!(read("name=a&name=b").one("name").is_err());
        assert!(read("nmae=a").done().is_err());
        assert!(Parameters::read(Some("name=%ff")).is_err());
    }
}

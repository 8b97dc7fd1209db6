//! What may be seen of a value that may hold a password.

/// Stands where a password was.
const HIDDEN: &str = "***";

/// Hides the passwords in a URL; anything else stays as it is.
pub(crate) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (place, query) = match rest.split_once('?') {
        Some((place, query)) => (place, Some(query)),
        None => (rest, None),
    };
    // A password with an unescaped `/` or `@` is hidden, too.
    let place = match place.rsplit_once('@') {
        Some((login, host)) => match login.split_once(':') {
            Some((user, _)) => format!("{user}:{HIDDEN}@{host}"),
            None => place.to_owned(),
        },
        None => place.to_owned(),
    };
    let query = query.map(|query| {
        let pairs = query.split('&').map(|pair| match pair.split_once('=') {
            Some(("password", _)) => format!("password={HIDDEN}"),
            Some(_) | None => pair.to_owned(),
        });
        format!("?{}", pairs.collect::<Vec<_>>().join("&"))
    });
    format!("{scheme}://{place}{}", query.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::without_password;

    #[test]
    fn passwords_are_hidden_and_nothing_else_is() {
        for (url, shown) in [
            ("sqlite:/a/b@c:d.db", "sqlite:/a/b@c:d.db"),
            ("postgres://me@db/x", "postgres://me@db/x"),
            ("postgres://db:5432/x", "postgres://db:5432/x"),
            ("postgres://me:s3@db:5432/x", "postgres://me:***@db:5432/x"),
            ("postgres://me:s@/3@db/x?a=b", "postgres://me:***@db/x?a=b"),
            (
                "postgresql://db/x?user=me&password=s3&a=b",
                "postgresql://db/x?user=me&password=***&a=b",
            ),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }
}

//! The arguments of a command, word by word.

use super::{REDACTED, Redactor, name};

/// Flags whose value is a login.
const LOGINS: [&str; 3] = ["-u", "--user", "--proxy-user"];

impl Redactor {
    /// Returns the words of a command without their secrets.
    ///
    /// Where one word ends and the next begins is known here, so what follows `--password` is hidden as a
    /// whole, whatever it looks like.
    #[must_use]
    pub fn arguments<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        let mut before = "";
        let shown = words.into_iter().map(|word| {
            let flag = std::mem::replace(&mut before, word);
            self.argument(flag, word)
        });
        shown.collect()
    }

    fn argument(&self, flag: &str, word: &str) -> String {
        if !self.on || word.is_empty() {
            return word.to_owned();
        }
        let is_flag = |word: &str| word.starts_with('-');
        let announced = is_flag(flag) && !flag.contains('=') && name::kind(flag).is_some();
        if announced && !is_flag(word) {
            return REDACTED.to_owned();
        }
        if let Some((name, value)) = word.split_once('=')
            && name.bytes().all(name::is_of_name)
            && name::kind(name).is_some()
            && !value.is_empty()
        {
            return format!("{name}={REDACTED}");
        }
        if LOGINS.contains(&flag)
            && let Some((user, password)) = word.split_once(':')
            // Two numbers are a user and a group.
            && !password.bytes().all(|byte| byte.is_ascii_digit())
        {
            return format!("{user}:{REDACTED}");
        }
        self.text(word).into_owned()
    }
}

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
    // Either a password has an unescaped `?`, or a value an `@`: nobody can tell which.
    if query.is_some_and(|query| query.contains('@')) {
        return format!("{scheme}://{HIDDEN}");
    }
    // A password with an unescaped `/` or `@` is hidden, too.
    let place = match place.rsplit_once('@') {
        Some((login, host)) => match login.split_once(':') {
            Some((user, _)) => format!("{user}:{HIDDEN}@{host}"),
            None => place.to_owned(),
        },
        None => place.to_owned(),
    };
    let query = query.map(|query| {
        let pairs = query.split('&').map(shown);
        format!("?{}", pairs.collect::<Vec<_>>().join("&"))
    });
    format!("{scheme}://{place}{}", query.unwrap_or_default())
}

/// Shows a parameter whose name is plain and not that of a password: what has no name may be the rest
/// of one.
fn shown(pair: &str) -> String {
    let plain = |name: &str| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    match pair.split_once('=') {
        Some((name, _)) if !plain(name) || name.contains("password") => {
            format!("{}={HIDDEN}", if plain(name) { name } else { HIDDEN })
        }
        Some(_) => pair.to_owned(),
        None if pair.is_empty() => String::new(),
        None => HIDDEN.to_owned(),
    }
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
            ("postgres://me:s?3@db/x", "postgres://***"),
            (
                "postgres://db/x?password=s&3",
                "postgres://db/x?password=***&***",
            ),
            ("postgres://db/x?p%61ssword=s3", "postgres://db/x?***=***"),
            (
                "postgres://db/x?sslpassword=s3",
                "postgres://db/x?sslpassword=***",
            ),
            ("postgres://db/x?password=s@3", "postgres://***"),
            (
                "postgresql://db/x?user=me&password=s3&a=b",
                "postgresql://db/x?user=me&password=***&a=b",
            ),
            (
                "postgres://me:s3@a,b:6/x?sslkey=/etc/k.pem&sslmode=verify-full&connections=4",
                "postgres://me:***@a,b:6/x?sslkey=/etc/k.pem&sslmode=verify-full&connections=4",
            ),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }
}

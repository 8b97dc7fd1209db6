use super::*;

fn read(section: &str) -> Result<Source, String> {
    let text = format!("[a]\n{section}");
    let tables: toml::Table = text.parse().expect("it is TOML");
    let read = inbox(Path::new("/etc/semel/semel.toml"), &tables);
    let mut read = read.map_err(|failure| failure.message)?;
    Ok(read.pop_first().expect("there is one").1)
}

const STRIPE: &str = "scheme = 'stripe'\nqueue = 'q'\nsecrets = ['env:A']\n";
const HMAC: &str =
    "scheme = 'hmac'\nheader = 'X-S'\nid = '/id'\nqueue = 'q'\nsecrets = ['env:A']\n";

#[test]
fn what_is_not_said_has_its_usual_value() {
    let source = read(STRIPE).expect("it is right");
    assert_eq!(source.id.to_string(), "/id");
    assert_eq!(source.tolerance, Tolerance::DEFAULT);
    assert_eq!(source.retention, Retention::DEFAULT);
    assert_eq!(source.max_body, BODY_MAX);
    // A sender's flood does not hold up another sender.
    assert_eq!((source.lane.as_str(), source.namespace), ("a", None));
    let source = read(HMAC).expect("it is right");
    let Scheme::Hmac(keyed) = source.scheme else {
        panic!("it is an HMAC");
    };
    assert_eq!(keyed.algorithm, Algorithm::Sha256);
    assert_eq!(
        (keyed.encoding, keyed.signed),
        (Encoding::Hex, Template::body())
    );
}

#[test]
fn what_is_said_counts() {
    let section = "scheme = 'hmac'\nheader = 'X-S'\nprefix = 'v0='\nalgorithm = 'sha512'\nencoding = 'base64'\n\
                   timestamp_header = 'X-T'\nsigned = 'v0:{timestamp}:{body}'\nid = 'header:X-I'\nqueue = 'q'\n\
                   lane = 'l'\npriority = -7\nheaders = ['X-Topic']\nnamespace = 'n'\ntolerance = '1m'\n\
                   retention = '8d'\nmax_body = '64KiB'\nsecrets = ['env:A', 'file:b', 'file:/c']";
    let source = read(section).expect("it is right");
    let Scheme::Hmac(keyed) = &source.scheme else {
        panic!("it is an HMAC");
    };
    assert_eq!(
        (keyed.header.as_str(), keyed.prefix.as_str()),
        ("x-s", "v0=")
    );
    assert_eq!(keyed.timestamp.as_deref(), Some("x-t"));
    assert_eq!((source.priority.get(), source.max_body), (-7, 64 * 1024));
    assert_eq!(source.headers, ["x-topic"]);
    // A file is looked for beside the settings.
    let secrets: Vec<_> = source.secrets.iter().map(ToString::to_string).collect();
    assert_eq!(secrets, ["env:A", "file:/etc/semel/b", "file:/c"]);
}

#[test]
fn what_cannot_be_meant_is_refused() {
    for (section, said) in [
        ("queue = 'q'".to_owned(), "`scheme` is missing"),
        ("scheme = 'x'\nqueue = 'q'".to_owned(), "`x` is not one of"),
        (
            "scheme = 'stripe'\nsecrets = ['env:A']".to_owned(),
            "`queue` is missing",
        ),
        ("scheme = 'stripe'\nqueue = 'q'".to_owned(), "no secret"),
        ("scheme = 'none'\nqueue = 'q'".to_owned(), "`id` is missing"),
        (
            "scheme = 'none'\nid = 'body'\nqueue = 'q'\nsecrets = ['env:A']".to_owned(),
            "`none` verifies nothing",
        ),
        (
            format!("{STRIPE}header = 'X'"),
            "`header` is for `scheme = \"hmac\"`",
        ),
        (format!("{STRIPE}secret = 'x'"), "unknown setting `secret`"),
        (
            format!("{STRIPE}id = 'signed'"),
            "only Standard Webhooks sign an id",
        ),
        (format!("{STRIPE}tolerance = '0s'"), "between 1 s and 24 h"),
        (format!("{STRIPE}tolerance = '2d'"), "between 1 s and 24 h"),
        (format!("{STRIPE}tolerance = '-5m'"), "is not a duration"),
        (
            format!("{STRIPE}tolerance = '99999999999999999999d'"),
            "is not a duration",
        ),
        (format!("{STRIPE}retention = '0s'"), "retention: "),
        (
            format!("{STRIPE}retention = '71h'"),
            "may come back for 72 h",
        ),
        (format!("{HMAC}retention = '6d'"), "may come back for 168 h"),
        (format!("{HMAC}tolerance = '1m'"), "do not say when"),
        (
            format!("{HMAC}signed = '{{timestamp}}.{{body}}'"),
            "the time must be signed",
        ),
        (
            format!("{HMAC}timestamp_header = 'X-T'\nsigned = '{{body}}'"),
            "the time must be signed",
        ),
        (
            format!("{HMAC}algorithm = 'sha1'"),
            "`sha1` is not one of sha256, sha512",
        ),
        (format!("{STRIPE}max_body = '0'"), "max_body: "),
        (
            format!("{STRIPE}max_body = '1MiB'"),
            "a task can hold no more",
        ),
        (format!("{STRIPE}priority = 101"), "priority: "),
        (format!("{STRIPE}namespace = 'a b'"), "namespace: "),
        (format!("{STRIPE}headers = ['a b']"), "no name of a header"),
    ] {
        let refused = read(&section).expect_err(&section);
        assert!(refused.contains(said), "{section}: {refused}");
        assert!(
            refused.starts_with("/etc/semel/semel.toml: inbox.a: "),
            "{refused}"
        );
    }
}

/// Whoever writes a secret where its place belongs does not find it in the error.
#[test]
fn what_may_be_a_secret_is_not_shown() {
    for secrets in [
        "['hush']",
        "'hush'",
        "['env:A', 'hush']",
        "['file:']",
        "['env:']",
        "[['hush']]",
        "[7]",
    ] {
        let section = format!("scheme = 'stripe'\nqueue = 'q'\nsecrets = {secrets}");
        let refused = read(&section).expect_err(&section);
        assert!(!refused.contains("hush"), "{refused}");
    }
}

#[test]
fn a_secret_is_one_line_of_a_file_or_a_variable() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let path = directory.path().join("secret");
    let from = SecretFrom::File(path.clone());
    assert!(from.read().is_err());
    for (text, read) in [
        ("a-secret\n", Some("a-secret")),
        ("a-secret\r\n", Some("a-secret")),
        (" a-secret ", Some(" a-secret ")),
        ("a-secret\n\n", None),
        ("a\nb", None),
    ] {
        std::fs::write(&path, text).expect("it can be written");
        assert_eq!(from.read().ok().as_deref(), read, "{text:?}");
    }
    std::fs::write(&path, "x".repeat(4_097)).expect("it can be written");
    assert!(from.read().is_err_and(|error| !error.contains("xx")));
    let unset = SecretFrom::Env("SEMEL_TEST_NOT_SET".to_owned());
    assert_eq!(
        unset.read(),
        Err("env:SEMEL_TEST_NOT_SET: it is not set".to_owned())
    );
}

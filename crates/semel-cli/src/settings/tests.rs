use super::*;

fn global() -> Global {
    Global {
        store: None,
        namespace: None,
        config: None,
        token: None,
        json: false,
        quiet: false,
    }
}

fn resolve(global: &Global, set: &[(&str, &str)]) -> Result<Settings, Failure> {
    Settings::resolve(global, None, &|name| {
        let found = set.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| OsString::from(value))
    })
}

fn file(text: &str) -> (tempfile::TempDir, Global) {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let path = directory.path().join("semel.toml");
    std::fs::write(&path, text).expect("a file can be written");
    let global = Global {
        config: Some(path),
        ..global()
    };
    (directory, global)
}

#[test]
fn a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default() {
    let (_directory, mut said) = file("store = 'sqlite:f'\nnamespace = 'f'\n[run]\nlease = '5s'");
    said.store = Some("sqlite:flag".to_owned());
    let set = [
        ("SEMEL_STORE", "sqlite:env"),
        ("SEMEL_NAMESPACE", "env"),
        ("SEMEL_RUN_WAIT", ""),
        ("HOME", "/home/a"),
    ];
    let settings = resolve(&said, &set).expect("all is well");
    let origin = |name: &str| (settings.get(name), &settings.values[name].origin);
    assert_eq!(origin("store"), ("sqlite:flag", &Origin::Flag("--store")));
    assert_eq!(
        origin("namespace"),
        ("env", &Origin::Env("SEMEL_NAMESPACE"))
    );
    let path = said.config.expect("it was named");
    assert_eq!(origin("run.lease"), ("5s", &Origin::File(path)));
    assert_eq!(origin("run.wait"), ("30s", &Origin::Default));
}

#[test]
fn store_is_a_plain_value_or_a_table_with_its_url() {
    for (text, store, copied) in [
        ("store = 'sqlite:f'", "sqlite:f", CopyPolicy::Refuse),
        (
            "[store]\nurl = 'sqlite:f'\ncopied = 'adopt'",
            "sqlite:f",
            CopyPolicy::Adopt,
        ),
        (
            "[store]\ncopied = 'ignore'",
            "sqlite:/home/a/.local/share/semel/semel.db",
            CopyPolicy::Ignore,
        ),
    ] {
        let (_directory, said) = file(text);
        let settings = resolve(&said, &[("HOME", "/home/a")]).expect("all is well");
        assert_eq!(
            (settings.store(), settings.copied()),
            (store, copied),
            "{text}"
        );
    }
    let set = [("SEMEL_STORE_COPIED", "adopt"), ("HOME", "/home/a")];
    let settings = resolve(&global(), &set).expect("all is well");
    assert_eq!(settings.copied(), CopyPolicy::Adopt);
    for wrong in [
        "store.copied = 'yes'",
        "[store]\nurl = 7",
        "[store]\nuri = 'x'",
    ] {
        let (_directory, said) = file(wrong);
        resolve(&said, &[("HOME", "/home/a")]).expect_err(wrong);
    }
}

#[test]
fn a_setting_that_nobody_knows_is_an_error_with_the_nearest_name() {
    for (text, hint) in [
        ("stoer = 'x'", "did you mean `store`?"),
        ("[run]\nleas = '5s'", "did you mean `run.lease`?"),
        (
            "[rum]\nlease = '5s'",
            "`semel config show` lists all settings",
        ),
    ] {
        let (_directory, said) = file(text);
        let failure = resolve(&said, &[("HOME", "/h")]).expect_err("it is unknown");
        assert_eq!(failure.hint.as_deref(), Some(hint), "{}", failure.message);
        assert_eq!(failure.exit(), 64);
    }
}

#[test]
fn what_cannot_be_used_says_where_it_came_from() {
    let (_directory, said) = file("[run]\nlease = '0s'");
    let failure = resolve(&said, &[("HOME", "/h")]).expect_err("a lease is at least a second");
    assert!(
        failure.message.contains("run.lease (file "),
        "{}",
        failure.message
    );
    let (_directory, said) = file("store = 7");
    let failure = resolve(&said, &[("HOME", "/h")]).expect_err("a number is no store");
    assert!(
        failure.message.contains("must be a string"),
        "{}",
        failure.message
    );
    let (_directory, said) = file("store = 'a'\nrun = [");
    let failure = resolve(&said, &[("HOME", "/h")]).expect_err("it is no TOML");
    assert!(failure.message.contains("line 2"), "{}", failure.message);
    let missing = Global {
        config: Some(PathBuf::from("/nowhere/semel.toml")),
        ..global()
    };
    let failure = resolve(&missing, &[("HOME", "/h")]).expect_err("it was asked for");
    assert!(
        failure.message.contains("/nowhere/semel.toml"),
        "{}",
        failure.message
    );
}

#[test]
fn the_default_store_is_in_the_users_data_directory() {
    let settings = resolve(
        &global(),
        &[("XDG_DATA_HOME", "/data"), ("HOME", "/home/a")],
    );
    assert_eq!(
        settings.expect("all is well").store(),
        "sqlite:/data/semel/semel.db"
    );
    let nowhere = resolve(&global(), &[("XDG_DATA_HOME", "relative"), ("HOME", "")]);
    assert!(nowhere.is_err());
}

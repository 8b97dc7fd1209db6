//! What the command says of a PostgreSQL server that it cannot use, and that nothing runs then.

use std::process::Stdio;
use std::thread;
use std::time::Duration;

use semel_testkit::postgres::Cluster;

use crate::harness::World;

/// The password of the user `locked`; nothing may show it.
const PASSWORD: &str = "s3cret";

fn locked() -> (Cluster, String) {
    let cluster = Cluster::start();
    let sql = format!("CREATE ROLE locked LOGIN SUPERUSER PASSWORD '{PASSWORD}'");
    cluster.sql("postgres", &sql);
    let url = cluster.url(&format!("locked:{PASSWORD}"), "postgres");
    (cluster, url)
}

/// Runs a command once; whether it ran is seen by its file.
fn order(store: &str) -> [&str; 9] {
    [
        "--json", "--store", store, "run", "--key", "order-7", "--", "touch", "ran",
    ]
}

#[test]
fn a_server_that_cannot_be_used_is_said_with_what_to_do_and_nothing_runs() {
    let (cluster, url) = locked();
    let world = World::new();
    let check = |store: &str, said: &str| {
        let ran = world.semel(&order(store));
        assert_eq!(ran.code, 125, "{store}: {ran:?}");
        let answer = &ran.json()[0];
        let error = &answer["error"];
        assert_eq!(answer["ok"], false, "{answer}");
        assert_eq!(error["code"], "store_unavailable", "{answer}");
        let message = error["message"].as_str().expect("there is a message");
        assert!(message.contains(said), "{store}: {message}");
        assert!(error["hint"].is_string(), "{answer}");
        assert!(
            ran.stderr.contains(said) && ran.stderr.contains("hint: "),
            "{}",
            ran.stderr
        );
        assert!(!format!("{ran:?}").contains(PASSWORD), "{ran:?}");
        assert!(!world.path("ran").exists(), "{store}: it ran");
    };
    check(
        &cluster.url("locked:s3cret-not", "postgres"),
        "check user and password",
    );
    check(
        &cluster.url("locked:s3cret", "nowhere"),
        "create the database first",
    );
    check(&format!("{url}?sslmode=require"), "Unix socket");
    check(&format!("{url}?sslmod=require"), "no parameter `sslmod`");
    check("postgres://locked:s3@cret@localhost/postgres", "%40");
    check(
        "postgres://locked:s3cret@localhost:1/postgres",
        "localhost:1",
    );
    check(
        "postgres://locked:s3cret@localhost/x?sslrootcert=/nowhere",
        "/nowhere cannot be read",
    );
    cluster.crash();
    check(&url, "is it running");
    cluster.start_again();
    let ran = world.semel(&order(&url));
    assert_eq!((ran.code, world.path("ran").exists()), (0, true), "{ran:?}");
}

#[test]
fn the_command_waits_for_a_connection_and_then_says_that_there_is_none() {
    let (cluster, url) = locked();
    let world = World::new();
    assert_eq!(world.semel(&["--store", &url, "list"]).code, 0);
    cluster.sql(
        "postgres",
        "ALTER ROLE locked NOSUPERUSER CONNECTION LIMIT 0",
    );
    let ran = world.semel(&order(&url));
    assert_eq!(
        (ran.code, world.path("ran").exists()),
        (125, false),
        "{ran:?}"
    );
    let message = ran.json()[0]["error"]["message"].to_string();
    assert!(message.contains("raise max_connections"), "{message}");

    let before = cluster.refused_connections();
    let mut command = world.command(&order(&url));
    let mut command = command.stdout(Stdio::null()).spawn().expect("it starts");
    // It has been sent away twice: so it waits.
    while cluster.refused_connections() < before + 2 {
        let ended = command.try_wait().expect("it can be looked at");
        assert_eq!(ended, None, "it did not ask again");
        thread::sleep(Duration::from_millis(10));
    }
    cluster.sql("postgres", "ALTER ROLE locked CONNECTION LIMIT -1");
    assert!(command.wait().expect("it ends").success());
    assert!(world.path("ran").exists());
}

#[test]
fn a_command_uses_one_connection_also_while_it_waits_for_another() {
    let cluster = Cluster::start();
    let url = cluster.url("semel", "postgres");
    let world = World::new();
    let run = [
        "--store",
        &url,
        "run",
        "--key",
        "k",
        "--",
        "sh",
        "-c",
        "read line",
    ];
    let start = || {
        let mut command = world.command(&run);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::null());
        command.spawn().expect("it starts")
    };
    let sessions = || {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'semel'";
        let count = cluster.sql("postgres", sql);
        count.parse::<u32>().expect("a number")
    };
    cluster.sql("postgres", "ALTER SYSTEM SET track_functions = 'all'");
    cluster.sql("postgres", "SELECT pg_reload_conf()");
    assert_eq!(world.semel(&["--store", &url, "list"]).code, 0);
    let mut first = start();
    let begun = "SELECT count(*) FROM semel.operations WHERE state = 'running'";
    while sessions() == 0 || cluster.sql("postgres", begun) == "0" {
        assert_eq!(first.try_wait().expect("it can be looked at"), None);
    }
    let mut second = start();
    while sessions() < 2 {
        assert_eq!(second.try_wait().expect("it can be looked at"), None);
    }
    // It has looked again and again by then.
    let looks = "SELECT calls > 5 FROM pg_stat_user_functions WHERE funcname = 'look'";
    while cluster.sql("postgres", looks) != "t" {
        assert!(sessions() <= 2, "a second connection was opened");
        assert_eq!(second.try_wait().expect("it can be looked at"), None);
    }
    drop(first.stdin.take());
    for command in [&mut first, &mut second] {
        command.wait().expect("it ends");
    }
}

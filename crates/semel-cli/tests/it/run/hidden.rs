//! Two users of one machine whose `/proc` hides their processes from each other (`hidepid`), on one
//! PostgreSQL ledger.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use semel_testkit::postgres::{Cluster, Setup};

use super::Sandbox;

/// The users where the tests run as root; they need no entry in `/etc/passwd`.
const USERS: [u32; 2] = [64_001, 64_002];

/// `$1` is the value of hidepid, `$2` the policy, `$3` the key. Exit codes of user b go to files.
/// The two users' words ($A, $B) are not quoted, so that they are split.
const SCRIPT: &str = r#"
mount -t proc -o "hidepid=$1" proc /proc || exit 90
a() { HOME=$ROOT/a SEMEL_STORE=$STORE_A exec $A "$SEMEL" "$@"; }
b() { HOME=$ROOT/b SEMEL_STORE=$STORE_B $B "$SEMEL" "$@"; }
ask() { b run --wait 0s --key "$3" --on-doubt "$2" -- sh -c "$EFFECT" "$3" >>"$ROOT/said" 2>&1; }

a run --lease 60s --key "$3" --on-doubt "$2" -- sh -c "$EFFECT" "$3" >"$ROOT/a.out" 2>&1 &
holder=$!
for _ in $(seq 600); do [ -s "$ROOT/child" ] && break; sleep 0.05; done
[ -s "$ROOT/child" ] || { cat "$ROOT/a.out"; exit 91; }
# With any value the state of the process must not be readable by user b, or nothing is shown here.
$B cat "/proc/$holder/stat" >/dev/null 2>&1 && exit 92
ask "$@"; echo $? >"$ROOT/while-it-runs"

kill -9 "$holder" "$(cat "$ROOT/child")"
wait "$holder"
for _ in $(seq 600); do kill -0 "$(cat "$ROOT/child")" 2>/dev/null || break; sleep 0.05; done
ask "$@"; echo $? >"$ROOT/when-it-is-gone"
"#;

/// Waits to be killed the first time; ends at once when another attempt runs it.
const EFFECT: &str = r#"
echo x >>"$ROOT/effects"
[ -s "$ROOT/child" ] && exit 0
echo $$ >"$ROOT/child"
exec sleep 600
"#;

/// The exit codes that user b gets, and how often the effect ran meanwhile.
#[derive(Debug, PartialEq, Eq)]
struct Course {
    while_it_runs: String,
    when_it_is_gone: String,
    effects: usize,
}

fn course(cluster: &Cluster, hidepid: &str, policy: &str) -> Course {
    let sandbox = Sandbox::new();
    let root = rustix::process::geteuid().is_root();
    let open = |path: &std::path::Path| {
        fs::set_permissions(path, Permissions::from_mode(0o777)).expect("it is ours");
    };
    open(sandbox.root());
    for (name, user) in ["a", "b"].into_iter().zip(USERS) {
        fs::create_dir(sandbox.path(name)).expect("it is new");
        if root {
            std::os::unix::fs::chown(sandbox.path(name), Some(user), Some(user))
                .expect("root gives it away");
        }
    }
    for name in ["effects", "child"] {
        fs::write(sandbox.path(name), "").expect("it is new");
        open(&sandbox.path(name));
    }
    // Root has real users. An ordinary user has none but itself: there each of the two gets a user
    // namespace, which hides it from the other in the same way.
    let (outer, users): (&[&str], _) = if root {
        let user = |id| format!("setpriv --reuid={id} --regid={id} --clear-groups");
        (&["--mount"], USERS.map(user))
    } else {
        let user = |id| format!("unshare --user --map-user={id}");
        let outer = &["--user", "--map-root-user", "--mount", "--pid", "--fork"];
        (outer, USERS.map(user))
    };
    let store = |user| format!("postgres://{user}@127.0.0.1:{}/postgres", cluster.port());
    let mut command = Command::new("unshare");
    sandbox.bare(&mut command);
    let key = format!("{policy}-{hidepid}");
    let output = command
        .args(outer)
        .args(["sh", "-c", SCRIPT, "sh", hidepid, policy, &key])
        .env("ROOT", sandbox.root())
        .env("SEMEL", env!("CARGO_BIN_EXE_semel"))
        .env("EFFECT", EFFECT)
        .env("A", &users[0])
        .env("B", &users[1])
        .env("STORE_A", store("a"))
        .env("STORE_B", store("b"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .expect("unshare runs");
    let said = fs::read_to_string(sandbox.path("said")).unwrap_or_default();
    assert!(output.status.success(), "{output:?} {said}");
    let code = |name| {
        let text = fs::read_to_string(sandbox.path(name)).expect("it was written");
        text.trim().to_owned()
    };
    Course {
        while_it_runs: code("while-it-runs"),
        when_it_is_gone: code("when-it-is-gone"),
        effects: sandbox.effects("effects"),
    }
}

#[test]
fn hidden_holder_is_in_flight_and_a_dead_one_is_gone() {
    let cluster = Cluster::start_with(&Setup {
        tcp: true,
        doors: "host all all 127.0.0.1/32 trust".to_owned(),
        ..Setup::default()
    });
    for role in ["a", "b"] {
        cluster.sql("postgres", &format!("CREATE ROLE {role} LOGIN SUPERUSER"));
    }
    for hidepid in ["1", "2"] {
        let expected = |gone: &str, effects| Course {
            while_it_runs: "122".to_owned(),
            when_it_is_gone: gone.to_owned(),
            effects,
        };
        // Its lease is 60 s: only the kernel's word makes it a doubt at once.
        assert_eq!(course(&cluster, hidepid, "hold"), expected("120", 1));
        assert_eq!(course(&cluster, hidepid, "retry"), expected("0", 2));
    }
}

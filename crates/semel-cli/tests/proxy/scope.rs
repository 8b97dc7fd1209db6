//! D. Whose key it is, and what is told to whom.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::harness::World;
use crate::http::{Address, Answer};
use crate::setup::{Setup, charge, fresh, is_replay, keyed, replay_of};
use crate::upstream::Reply;

fn ask(setup: &Setup, headers: &[(&str, &str)]) -> Answer {
    let asked = headers
        .iter()
        .fold(keyed("k"), |asked, (name, value)| asked.header(name, value));
    setup.ask(asked)
}

#[test]
fn c057_c059_two_callers_never_share_a_key() {
    let setup = Setup::new();
    let callers: [&[(&str, &str)]; 7] = [
        &[],
        &[("Authorization", "Bearer ann")],
        &[("Authorization", "Bearer bob")],
        &[("Authorization", "Basic YW5uOjE=")],
        &[("Authorization", "Basic Ym9iOjE=")],
        &[("Cookie", "session=ann")],
        &[("Cookie", "session=bob")],
    ];
    let firsts = callers.map(|caller| ask(&setup, caller));
    for (caller, first) in callers.iter().zip(&firsts) {
        fresh(first, 201);
        replay_of(first, &ask(&setup, caller));
    }
    assert_eq!(setup.effects(), callers.len());
}

/// The headers by which vendors tell their users apart, but for `Authorization`.
const CREDENTIAL_HEADERS: [&str; 21] = [
    "x-api-key",
    "api-key",
    "x-goog-api-key",
    "x-auth-token",
    "private-token",
    "api_key",
    "apikey",
    "DD-API-KEY",
    "X-Auth-Key",
    "X-Api-Secret",
    "X-Shopify-Access-Token",
    "X-Amz-Security-Token",
    "X-Vault-Token",
    "x-functions-key",
    "Ocp-Apim-Subscription-Key",
    "Stripe-Account",
    "OpenAI-Organization",
    "OpenAI-Project",
    "X-Goog-User-Project",
    "Signature-Input",
    "Cookie",
];

/// Returns the value by which a header names a user.
fn naming(header: &str, user: &str) -> String {
    match header {
        "Cookie" => format!("session={user}"),
        "Signature-Input" => format!("sig=(\"@method\");keyid=\"{user}\""),
        _ => user.to_owned(),
    }
}

/// Each header at each kind of route: as the command line makes one, and as settings do; with the profile for language
/// models, whose vendors use most of them.
#[test]
fn c057_c059_an_answer_reaches_only_the_caller_it_was_made_for() {
    let setups = [
        Setup::new(),
        Setup::with(&["--profile", "llm"]),
        Setup::routed("path = \"/charges\"\nprofile = \"llm\""),
        Setup::routed("profile = \"acp\""),
    ];
    for (number, setup) in setups.iter().enumerate() {
        for header in CREDENTIAL_HEADERS {
            let asked = |user: &str| {
                let asked = keyed(header);
                match user {
                    "" => asked,
                    user => asked.header(header, &naming(header, user)),
                }
            };
            let callers = ["alice", "bob", ""];
            let firsts = callers.map(|user| setup.ask(asked(user)));
            for (user, first) in callers.iter().zip(&firsts) {
                assert!(!is_replay(first), "{number}: {header}: {user}: {first:?}");
                fresh(first, 201);
            }
            for (user, first) in callers.iter().zip(&firsts) {
                replay_of(first, &setup.ask(asked(user)));
            }
            assert_eq!(setup.upstream.effects_of(header), 3, "{number}: {header}");
        }
    }
}

#[test]
fn c059_a_caller_without_credentials_is_asked_for_them_by_the_upstream() {
    for header in ["X-Api-Key", "Cookie", "Private-Token"] {
        let setup = Setup::new();
        let alice = naming(header, "alice");
        fresh(&setup.ask(keyed("k").header(header, &alice)), 201);
        for _ in 0..2 {
            setup
                .upstream
                .answers(Reply::new(401, "who are you?").harmless());
            fresh(&setup.ask(keyed("k")), 401);
        }
        assert_eq!(setup.effects(), 1);
    }
}

/// The same without a key: a lost answer waits for its own caller.
#[test]
fn c059_a_lost_answer_is_not_told_to_a_caller_without_credentials() {
    let setup = Setup::new();
    let alice = || charge("c").header("x-api-key", "alice");
    let gate = setup.upstream.holds();
    let lost = setup.begin(&alice());
    setup.upstream.wait_for_effects(1);
    drop(lost);
    gate.open();
    setup.wait_for_state("succeeded");
    for user in ["", "bob"] {
        fresh(&setup.ask(charge("c").header("x-api-key", user)), 201);
    }
    let told = setup.ask(alice());
    assert!(is_replay(&told), "{told:?}");
    assert_eq!(told.json()["effect"], 1, "{told:?}");
    assert_eq!(setup.effects(), 3);
}

#[test]
fn c057_an_agent_is_told_by_the_profile_that_it_names() {
    let setup = Setup::routed("profile = \"ucp\"");
    let ask = |agent: &str, signature: &str| {
        let asked = keyed("1").header("UCP-Agent", agent);
        setup.ask(asked.header("request-signature", signature))
    };
    let of = |agent: &str| format!("profile=\"https://{agent}.example/p\"");
    let first = ask(&of("alice"), "sig-of-alice");
    fresh(&first, 201);
    fresh(&ask(&of("bob"), "sig-of-bob"), 201);
    // Another version of the protocol is still the same agent, whose order must not be made twice.
    let newer = format!("{}; version=\"2099-01-01\"", of("alice"));
    replay_of(&first, &ask(&newer, "another"));
    fresh(&setup.ask(keyed("1")), 201);
    assert_eq!(setup.effects(), 3);
}

fn signed(user: &str, day: u32, signature: &str) -> String {
    format!(
        "AWS4-HMAC-SHA256 Credential=AKIA{user}/202611{day}/us-east-1/ec2/aws4_request, \
         SignedHeaders=host;x-amz-date, Signature={signature}"
    )
}

#[test]
fn c058_a_retry_that_is_signed_again_is_the_same_caller() {
    let setup = Setup::new();
    let sign =
        |user, day, signature| ask(&setup, &[("Authorization", &signed(user, day, signature))]);
    let first = sign("ALICE", 17, "aa");
    fresh(&first, 201);
    replay_of(&first, &sign("ALICE", 18, "bb"));
    fresh(&sign("BOB", 17, "aa"), 201);
    // A route may count every byte.
    let setup = Setup::routed("credentials = [\"whole:Authorization\"]");
    for signature in ["aa", "bb"] {
        let line = signed("ALICE", 17, signature);
        fresh(&ask(&setup, &[("Authorization", &line)]), 201);
    }
}

#[test]
fn c058_a_changed_cookie_is_the_same_caller_where_another_credential_tells() {
    let setup = Setup::new();
    for header in ["Authorization", "X-Api-Key"] {
        let ask = |cookie: &str| {
            let asked = keyed(header).header(header, "Bearer alice");
            setup.ask(asked.header("Cookie", cookie))
        };
        let first = ask("session=1; theme=dark");
        fresh(&first, 201);
        replay_of(&first, &ask("session=2"));
    }
    let ask = |cookie: &str| setup.ask(keyed("cookies").header("Cookie", cookie));
    let first = ask("session=1; AWSALB=x; _ga=GA1.1");
    fresh(&first, 201);
    replay_of(&first, &ask("_ga_AB12=1; AWSALB=y; session=1; __cf_bm=z"));
    fresh(&ask("session=2; AWSALB=x; _ga=GA1.1"), 201);
}

#[test]
fn c057_a_credential_in_the_query_counts_where_the_query_is_not_compared() {
    let setup = Setup::with(&["--profile", "acp"]);
    let ask = |query: &str| {
        let body = serde_json::json!({"id": "c"});
        let asked = crate::http::Asked::post(&format!("/charges?{query}"), &body);
        setup.ask(asked.header("Idempotency-Key", "k"))
    };
    let first = ask("api_key=alice&page=1");
    fresh(&first, 201);
    fresh(&ask("api_key=bob"), 201);
    fresh(&ask("page=1"), 201);
    replay_of(&first, &ask("api_key=alice"));
}

/// Two callers that share a key of the upstream's, and have a token each.
#[test]
fn c057_the_holders_of_two_tokens_never_share_an_answer() {
    let setup = Setup::new();
    let tokens = ["alice", "bob"].map(|label| {
        let words = [
            "token", "create", "--scope", "write", "--label", label, "--json",
        ];
        let made = setup.world.semel(&words);
        let token = &made.json()[0]["token"];
        token.as_str().expect("a token is text").to_owned()
    });
    let shared = ("Authorization", "Bearer shared");
    let firsts = tokens
        .clone()
        .map(|token| ask(&setup, &[shared, ("Semel-Token", &token)]));
    for (token, first) in tokens.iter().zip(&firsts) {
        fresh(first, 201);
        let bearer = format!("Bearer {token}");
        replay_of(
            first,
            &ask(&setup, &[shared, ("Proxy-Authorization", &bearer)]),
        );
    }
    fresh(&ask(&setup, &[shared]), 201);
}

#[test]
fn c057_an_api_key_says_who_it_is_where_the_route_says_so() {
    let setup = Setup::routed("credentials = [\"X-Tenant\"]");
    for caller in ["ann", "bob"] {
        let first = ask(&setup, &[("X-Tenant", caller)]);
        fresh(&first, 201);
        let again = ask(&setup, &[("X-Tenant", caller), ("X-Api-Key", "new")]);
        replay_of(&first, &again);
    }
    assert_eq!(setup.effects(), 2);
}

#[test]
fn c058_a_new_token_of_the_same_caller_is_the_same_caller() {
    let setup = Setup::routed("credentials = [\"X-User\"]");
    let first = ask(&setup, &[("X-User", "ann"), ("Authorization", "Bearer 1")]);
    fresh(&first, 201);
    let again = ask(&setup, &[("X-User", "ann"), ("Authorization", "Bearer 2")]);
    replay_of(&first, &again);
    assert_eq!(setup.effects(), 1);
}

/// A JSON Web Token without a signature that could be verified.
fn token(claims: &serde_json::Value, signature: &str) -> String {
    use base64::Engine as _;
    let payload = base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(claims.to_string());
    format!("Bearer eyJhbGciOiJSUzI1NiJ9.{payload}.{signature}")
}

#[test]
fn c058_a_refreshed_token_is_the_same_caller_where_the_route_reads_its_subject() {
    let claims =
        |user: &str, until: u32| serde_json::json!({"iss": "i", "sub": user, "exp": until});
    for (members, is_same) in [
        ("", false),
        ("credentials = [\"jwt:Authorization\"]", true),
        ("credentials = [\"default\", \"jwt:Authorization\"]", true),
    ] {
        let setup = Setup::routed(members);
        let ask =
            |claims: &serde_json::Value| ask(&setup, &[("Authorization", &token(claims, "c2ln"))]);
        let first = ask(&claims("ann", 1));
        fresh(&first, 201);
        let refreshed = ask(&claims("ann", 2));
        assert_eq!(is_replay(&refreshed), is_same, "{members}: {refreshed:?}");
        fresh(&ask(&claims("bob", 1)), 201);
    }
}

#[test]
fn credentials_that_cannot_be_read_are_refused_when_the_proxy_starts() {
    for (toml, said) in [
        (
            "[proxy]\ncredentials = [\"jvt:Authorization\"]",
            "`jvt:` is unknown",
        ),
        ("[proxy]\ncredentials = []", "name at least one header"),
        (
            "[proxy]\nignored_cookies = [\"*\"]",
            "`*` is not a cookie's name",
        ),
        (
            "[[proxy.route]]\nupstream = \"http://127.0.0.1:1\"\ncredentials = [\"a b\"]",
            "proxy.route 1: credentials: `a b` is not a header name",
        ),
    ] {
        let world = World::new();
        std::fs::write(world.path("semel.toml"), toml).expect("it can be written");
        let ran = world.semel(&["proxy", "--listen", "127.0.0.1:0"]);
        assert_eq!(ran.code, 64, "{ran:?}");
        assert!(ran.stderr.contains(said), "{toml}: {ran:?}");
    }
}

#[test]
fn config_show_tells_which_credentials_count() {
    let world = World::new();
    let toml = "[proxy]\ncredentials = [\"default\", \"X-Tenant\"]\n\
                [[proxy.route]]\nupstream = \"http://127.0.0.1:1\"\nprofile = \"ucp\"\n\
                [[proxy.route]]\nupstream = \"http://127.0.0.1:1\"\ncredentials = [\"X-User\"]\nignored_cookies = []\n";
    let value = |world: &World, name: &str| {
        let shown = world.semel(&["config", "show", "--json"]).json();
        let row = shown.into_iter().find(|row| row["name"] == name);
        row.unwrap_or_else(|| panic!("{name} is not shown"))
    };
    let usual = value(&world, "proxy.credentials");
    assert_eq!(usual["origin"], "default");
    for text in [
        "\"Authorization\"",
        "\"*api-key\"",
        "\"account:Stripe-Account\"",
        "\"Cookie\"",
    ] {
        let shown = usual["value"].as_str().expect("it is text");
        assert!(shown.contains(text), "{text}: {shown}");
    }
    assert!(
        value(&world, "proxy.ignored_cookies")["value"]
            .to_string()
            .contains("AWSALB*")
    );
    std::fs::write(world.path("semel.toml"), toml).expect("it can be written");
    let first = value(&world, "proxy.route.1.credentials")["value"].to_string();
    for text in ["*api-key", "X-Tenant", "profile:UCP-Agent"] {
        assert!(first.contains(text), "{text}: {first}");
    }
    let second = value(&world, "proxy.route.2.credentials");
    assert_eq!(second["value"], "[\"X-User\"]");
    assert_eq!(second["origin"], "file semel.toml");
    assert_eq!(
        value(&world, "proxy.route.2.ignored_cookies")["value"],
        "[]"
    );
    let shown = world.semel(&["config", "show"]).stdout;
    assert!(shown.contains("proxy.route.2.credentials"), "{shown}");
}

/// Credentials are no part of what is stored, not even as names.
#[test]
fn c059_credentials_are_not_stored() {
    let mut setup = Setup::new();
    let first = ask(&setup, &[("Authorization", "Bearer sk-4711-secret")]);
    fresh(&first, 201);
    setup.proxy_mut().kill();
    let mut found = 0;
    for entry in std::fs::read_dir(setup.world.path("data")).expect("there is a store") {
        let bytes = std::fs::read(entry.expect("it can be listed").path());
        let bytes = bytes.expect("it can be read");
        let holds = |text: &[u8]| bytes.windows(text.len()).any(|it| it == text);
        assert!(!holds(b"sk-4711-secret"));
        found += usize::from(holds(b"POST /charges"));
    }
    assert!(found > 0, "the store was looked at");
}

#[test]
fn c060_what_is_for_the_first_caller_is_for_nobody_else() {
    let setup = Setup::new();
    let personal = [
        ("Set-Cookie", "session=1; HttpOnly"),
        ("WWW-Authenticate", "Basic"),
        ("Authorization", "echoed"),
        ("Proxy-Status", "x"),
    ];
    let reply = personal
        .iter()
        .fold(Reply::new(200, "ok"), |reply, (name, value)| {
            reply.header(name, value)
        });
    setup.upstream.answers(reply.header("X-Custom", "kept"));
    let first = setup.ask(keyed("k"));
    for (name, value) in &personal[..2] {
        let name = name.to_ascii_lowercase();
        assert_eq!(first.header(&name), Some(*value), "{first:?}");
    }
    let again = setup.ask(keyed("k"));
    replay_of(&first, &again);
    assert_eq!(again.header("x-custom"), Some("kept"), "{again:?}");
    for (name, _) in personal {
        let name = name.to_ascii_lowercase();
        assert_eq!(again.header(&name), None, "{again:?}");
    }
}

#[test]
fn c061_what_is_for_the_next_hop_goes_no_further() {
    let setup = Setup::new();
    let reply = Reply::new(200, "ok")
        .header("Connection", "X-Hop, keep-alive")
        .header("X-Hop", "theirs")
        .header("Keep-Alive", "timeout=5")
        .header("X-Custom", "kept");
    setup.upstream.answers(reply);
    let asked = keyed("k")
        .header("Connection", "X-Mine, keep-alive")
        .header("X-Mine", "ours")
        .header("Keep-Alive", "timeout=1")
        .header("Proxy-Connection", "keep-alive")
        .header("TE", "trailers")
        .header("X-Kept", "yes");
    let first = setup.ask(asked);
    fresh(&first, 200);
    let received = &setup.upstream.received()[0];
    for name in ["x-mine", "keep-alive", "proxy-connection"] {
        assert_eq!(received.header(name), None, "{name}: {received:?}");
    }
    assert_eq!(received.header("x-kept").as_deref(), Some("yes"));
    let again = setup.ask(keyed("k"));
    for answer in [&first, &again] {
        assert_eq!(answer.header("x-hop"), None, "{answer:?}");
        assert_eq!(answer.header("keep-alive"), None, "{answer:?}");
        assert_eq!(answer.header("x-custom"), Some("kept"), "{answer:?}");
    }
}

#[test]
fn c062_what_belongs_to_one_answer_is_made_anew() {
    let setup = Setup::new();
    let stale = [
        ("Date", "Thu, 01 Jan 1970 00:00:00 GMT"),
        ("Age", "7"),
        ("Server", "upstream"),
        ("Alt-Svc", "h3=\":443\""),
    ];
    let reply = stale
        .iter()
        .fold(Reply::new(200, "ok"), |reply, (name, value)| {
            reply.header(name, value)
        });
    setup.upstream.answers(reply.chunked());
    let first = setup.ask(keyed("k"));
    fresh(&first, 200);
    let again = setup.ask(keyed("k"));
    replay_of(&first, &again);
    for (name, value) in stale {
        let name = name.to_ascii_lowercase();
        assert_ne!(again.header(&name), Some(value), "{again:?}");
    }
    assert!(again.header("date").is_some(), "{again:?}");
}

/// Returns an answer as it is on the wire.
fn raw(setup: &Setup, key: &str) -> Vec<u8> {
    let Address::Tcp(address) = setup.proxy().address() else {
        panic!("it listens on TCP");
    };
    let mut stream = TcpStream::connect(address).expect("it listens");
    let asked = keyed(key).header("Connection", "close");
    stream.write_all(&asked.bytes()).expect("it is sent");
    let mut answer = vec![];
    stream.read_to_end(&mut answer).expect("it is answered");
    answer
}

#[test]
fn c063_repeated_headers_and_odd_bytes_survive() {
    let setup = Setup::new();
    let reply = Reply::new(200, "ok")
        .header("Link", "<a>; rel=x")
        .header("Link", "<b>; rel=y")
        .header("X-Odd", b"caf\xe9 \xff");
    setup.upstream.answers(reply);
    for _ in 0..2 {
        let answer = raw(&setup, "k");
        let count = |text: &[u8]| answer.windows(text.len()).filter(|it| *it == text).count();
        let text = String::from_utf8_lossy(&answer);
        assert_eq!(count(b"<a>; rel=x\r\n"), 1, "{text}");
        assert_eq!(count(b"<b>; rel=y\r\n"), 1, "{text}");
        assert_eq!(count(b"caf\xe9 \xff\r\n"), 1, "{text}");
    }
    assert_eq!(setup.effects(), 1);
}

/// What the flood leaves in memory; the answers that are kept for replays have a limit of their own.
const FLOOD_MEMORY_MAX: u64 = 128 * 1024 * 1024;

#[test]
fn c065_a_flood_of_keys_does_not_fill_the_memory() {
    let setup = Setup::new();
    let before = {
        fresh(&setup.ask(keyed("first")), 201);
        setup.proxy().memory()
    };
    let many = semel_testkit::scaled(30_000, 4_000);
    std::thread::scope(|scope| {
        for client in 0..8 {
            let setup = &setup;
            scope.spawn(move || {
                let mut connection = setup.proxy().connect();
                for number in 0..many / 8 {
                    let asked = keyed(&format!("k-{client}-{number}"));
                    let asked = asked.header("Authorization", &format!("Bearer {number}"));
                    connection.send(&asked.bytes()).expect("it is sent");
                    let answer = connection.answer().expect("it is answered");
                    assert_eq!(answer.status, 201, "{answer:?}");
                }
            });
        }
    });
    let grown = setup.proxy().memory().saturating_sub(before);
    assert!(
        grown < FLOOD_MEMORY_MAX,
        "{grown} bytes more after {many} keys"
    );
    assert!(is_replay(&setup.ask(keyed("first"))));
}

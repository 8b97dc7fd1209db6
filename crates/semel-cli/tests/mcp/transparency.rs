//! What is not the gateway's business goes through as it came, in both directions, byte for byte.

use semel_testkit::process::Dice;
use serde_json::{Value, json};

use crate::desk::Era;
use crate::setup::{Carrier, Setup, Way};
use crate::wire::{Client, Heard, MODERN};

/// How many messages of each kind go through each way.
const ROUNDS: u64 = 40;

/// Numbers that a reader who is not careful spells differently, or loses digits of.
const NUMBERS: [&str; 12] = [
    "0",
    "-0",
    "-0.0",
    "1.0",
    "1.10",
    "1e3",
    "1E+3",
    "1.5e-7",
    "9007199254740993",
    "123456789012345678901234567890",
    "0.1000000000000000055511151231257827021181583404541015625",
    "1e400",
];

/// Texts that a reader who is not careful writes differently.
const TEXTS: [&str; 8] = [
    r#""""#,
    r#""plain""#,
    r#""\u0041\/\u00e9\ud83d\ude00""#,
    r#""\ud800 is half of a pair""#,
    r#""tab\tnull\u0000end""#,
    "\"é 😀 \u{2028} \u{7f}\"",
    r#""__proto__""#,
    r#""{\"not\":\"parsed\"}""#,
];

const HALF_A_PAIR: &str = r"\ud800 is";

/// Writes values that are JSON, and nothing more can be said of them.
struct Writer(Dice);

impl Writer {
    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        let index = self.0.below(from.len() as u64);
        from[usize::try_from(index).unwrap_or(0)]
    }

    fn space(&mut self) -> &'static str {
        self.pick(&["", "", "", " ", "  ", "\t"])
    }

    fn value(&mut self, depth: u32) -> String {
        match self.0.below(if depth == 0 { 3 } else { 5 }) {
            0 => self.pick(&NUMBERS).to_owned(),
            1 => self.pick(&TEXTS).to_owned(),
            2 => self.pick(&["true", "false", "null"]).to_owned(),
            3 => {
                let items: Vec<_> = (0..self.0.below(4))
                    .map(|_| self.value(depth - 1))
                    .collect();
                let space = self.space();
                format!("[{space}{}]", items.join(&format!(",{space}")))
            }
            _ => self.object(depth, ""),
        }
    }

    /// Writes an object that begins with these members.
    fn object(&mut self, depth: u32, first: &str) -> String {
        let mut members: Vec<_> = (0..self.0.below(4))
            .map(|number| {
                let space = self.space();
                let value = self.value(depth.saturating_sub(1));
                format!("\"odd {number}\"{space}:{space}{value}")
            })
            .collect();
        if !first.is_empty() {
            members.insert(0, first.to_owned());
        }
        let space = self.space();
        format!("{{{space}{}{space}}}", members.join(&format!("{space},")))
    }

    fn id(&mut self, number: u64) -> String {
        match self.0.below(4) {
            0 => format!("\"a text \\u0041 {number}\""),
            1 => format!("90071992547409{number:04}"),
            2 => format!("\"é {number}\""),
            _ => format!("{}", 1_000 + number),
        }
    }

    /// Writes the params of a request, with what the era needs in them.
    fn params(&mut self, era: Era, first: &str) -> String {
        let meta = match era {
            Era::Modern => format!(
                r#""_meta":{{"io.modelcontextprotocol/protocolVersion":"{MODERN}","io.modelcontextprotocol/clientCapabilities":{{}},"odd":{}}}"#,
                self.value(2)
            ),
            Era::Legacy => format!(r#""_meta":{{"odd":{}}}"#, self.value(2)),
        };
        let comma = if first.is_empty() { "" } else { "," };
        self.object(3, &format!("{first}{comma}{meta}"))
    }
}

/// Ids are the gateway's own where one child serves many clients that do not know of each other.
fn keeps_ids(front: Carrier, upstream: Carrier, era: Era) -> bool {
    !(front == Carrier::Http && upstream == Carrier::Stdio && era == Era::Modern)
}

#[track_caller]
fn raw(client: &mut Client, text: &str, id: &str) -> (Vec<String>, Heard) {
    let id: Value = serde_json::from_str(id).expect("an id is JSON");
    let sent = client.send_raw(text, id);
    client.hear_all(sent)
}

fn played(front: Option<Carrier>, upstream: Carrier, era: Era) {
    let (seed, dice) = Dice::fresh();
    let mut writer = Writer(dice);
    let way = front.map_or(Way::Direct, Way::Gateway);
    let place = format!("seed {seed}, {way:?} to {upstream:?}, {era:?}");
    let setup = Setup::new(way, upstream, era);
    let mut client = setup.client();
    let same_ids = front.is_none_or(|front| keeps_ids(front, upstream, era));
    for number in 0..ROUNDS {
        let id = writer.id(number);
        // A request that nobody knows arrives as it was sent.
        let params = writer.params(era, "");
        let odd = writer.value(2);
        let text = format!(
            r#"{{"jsonrpc":"2.0","odd":{odd},"id":{id},"method":"x/odd","params":{params}}}"#
        );
        let (_, heard) = raw(&mut client, &text, &id);
        let arrived = heard.result()["raw"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if same_ids {
            assert_eq!(arrived, text, "{place}");
        } else {
            let rest = format!(r#","method":"x/odd","params":{params}}}"#);
            assert!(arrived.ends_with(&rest), "{place}: {arrived}");
        }
        // A result that nobody knows arrives as it was sent, and so does what comes before it.
        let result = writer.object(3, "");
        let quoted = Value::String(result.clone()).to_string();
        let params = writer.params(era, &format!(r#""raw":{quoted}"#));
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"fixture/reply","params":{params}}}"#);
        let (_, heard) = raw(&mut client, &text, &id);
        let expected = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
        assert_eq!(heard, Heard::Message(expected), "{place}");
        let aside = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/odd","params":{}}}"#,
            writer.object(3, "")
        );
        let quoted = Value::String(aside.clone()).to_string();
        let params = writer.params(era, &format!(r#""raw":{quoted}"#));
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"fixture/tell","params":{params}}}"#);
        let (asides, _) = raw(&mut client, &text, &id);
        assert!(asides.contains(&aside), "{place}: {aside} in {asides:?}");
    }
    told_as_it_was(&mut client, &setup, &mut writer, &place);
    called_as_it_was(&mut client, &setup, &mut writer, &place);
}

/// A notification that nobody knows arrives as it was sent.
fn told_as_it_was(client: &mut Client, setup: &Setup, writer: &mut Writer, place: &str) {
    let texts: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let params = writer.params(setup.era, "");
            format!(r#"{{"jsonrpc":"2.0","method":"x/told","params":{params}}}"#)
        })
        .collect();
    for text in &texts {
        client.tell_raw(text);
    }
    client.ask("x/done", json!({}));
    let received = setup.desk.received();
    let arrived: Vec<_> = received
        .iter()
        .filter_map(|line| line["raw"].as_str())
        .collect();
    for text in &texts {
        assert!(arrived.contains(&text.as_str()), "{place}: {text}");
    }
}

/// The arguments of a call arrive as they were sent: they are what is fingerprinted.
fn called_as_it_was(client: &mut Client, setup: &Setup, writer: &mut Writer, place: &str) {
    for number in 0..ROUNDS {
        let arguments = writer.object(3, r#""order_id":"odd""#);
        let first = format!(r#""name":"charge","arguments":{arguments}"#);
        let params = writer.params(setup.era, &first);
        if params.contains(HALF_A_PAIR) {
            // It has no meaning that everybody shares, so no call may have it.
            continue;
        }
        let id = 5_000 + number;
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#);
        let (_, heard) = raw(client, &text, &id.to_string());
        heard.result();
        let received = setup.desk.received();
        let arrived = received.last().and_then(|line| line["raw"].as_str());
        let arrived = arrived.unwrap_or_default();
        assert!(arrived.contains(&first), "{place}: {arrived}");
    }
}

#[test]
fn without_it_all_is_as_it_was() {
    for upstream in [Carrier::Stdio, Carrier::Http] {
        played(None, upstream, Era::Legacy);
        played(None, upstream, Era::Modern);
    }
}

/// Makes a test of each way.
macro_rules! ways {
    ($($name:ident: $front:ident to $upstream:ident, $era:ident;)*) => {$(
        #[test]
        fn $name() {
            played(Some(Carrier::$front), Carrier::$upstream, Era::$era);
        }
    )*};
}

ways! {
    stdio_to_stdio_legacy: Stdio to Stdio, Legacy;
    stdio_to_stdio_modern: Stdio to Stdio, Modern;
    stdio_to_http_legacy: Stdio to Http, Legacy;
    stdio_to_http_modern: Stdio to Http, Modern;
    http_to_stdio_legacy: Http to Stdio, Legacy;
    http_to_stdio_modern: Http to Stdio, Modern;
    http_to_http_legacy: Http to Http, Legacy;
    http_to_http_modern: Http to Http, Modern;
}

/// What is listed is listed as the server lists it, with what no revision of the protocol knows.
#[test]
fn the_list_of_tools_is_the_servers() {
    for upstream in [Carrier::Stdio, Carrier::Http] {
        for era in [Era::Legacy, Era::Modern] {
            let direct = Setup::new(Way::Direct, upstream, era);
            let expected = direct.client().ask("tools/list", json!({}));
            for front in [Carrier::Stdio, Carrier::Http] {
                let setup = Setup::new(Way::Gateway(front), upstream, era);
                let listed = setup.client().ask("tools/list", json!({}));
                assert_eq!(listed, expected, "{front:?} to {upstream:?}, {era:?}");
            }
        }
    }
}

/// A server meets its client once, as it would without the gateway.
#[test]
fn a_handshake_is_made_once() {
    for front in [Carrier::Stdio, Carrier::Http] {
        for upstream in [Carrier::Stdio, Carrier::Http] {
            let setup = Setup::new(Way::Gateway(front), upstream, Era::Legacy);
            setup.client().ask("tools/list", json!({}));
            for method in ["initialize", "notifications/initialized"] {
                let times = setup.desk.received_of(method);
                assert_eq!(times, 1, "{method}, {front:?} to {upstream:?}");
            }
        }
    }
}

/// A member that is there twice may mean one thing to us and another to the server.
#[test]
fn a_call_that_says_two_things_is_refused() {
    for era in [Era::Legacy, Era::Modern] {
        let setup = Setup::new(Way::Gateway(Carrier::Stdio), Carrier::Stdio, era);
        let mut client = setup.client();
        let mut writer = Writer(Dice::seeded(1));
        for arguments in [
            r#"{"order_id":"o-7","amount":1,"amount":2}"#,
            r#"{"order_id":"o-7","note":{"a":1,"\u0061":2}}"#,
        ] {
            let first = format!(r#""name":"charge","arguments":{arguments}"#);
            let params = writer.params(era, &first);
            let text =
                format!(r#"{{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{params}}}"#);
            let (_, heard) = raw(&mut client, &text, "77");
            heard.error();
        }
        assert_eq!(setup.desk.effects(), 0);
    }
}

use std::time::Duration;

use proptest::prelude::*;

use super::wild;
use crate::mcp::message::Message;
use crate::mcp::sse::{Decoder, Event, TooLarge, event};

fn fed(decoder: &mut Decoder, bytes: &[u8], size: usize) -> Vec<Result<Event, TooLarge>> {
    let pieces = bytes.chunks(size);
    pieces.flat_map(|piece| decoder.feed(piece)).collect()
}

fn datas(events: Vec<Result<Event, TooLarge>>) -> Vec<String> {
    let events = events.into_iter().map(|event| match event {
        Ok(event) => format!("{}={}", event.kind, event.data.escape_ascii()),
        Err(TooLarge) => "too large".to_owned(),
    });
    events.collect()
}

#[test]
fn events_are_read_however_they_are_cut() {
    let stream = "\u{feff}: hello\n\ndata: {\"a\":1}\n\nevent: message\r\nid: 7\r\ndata: one\r\ndata:two\r\ndata:  three\r\n\r\n\
                  data: cr\rdata\r\rretry: 1500\nid\ndata: last\nother: x\ndata\n\nevent: ping\n\ndata:\n\ndata: unfinished";
    for size in 1..stream.len() {
        let mut decoder = Decoder::default();
        let events = datas(fed(&mut decoder, stream.as_bytes(), size));
        let expected = [
            "message={\"a\":1}"
                .escape_default()
                .to_string()
                .replace("\\'", "'"),
            "message=one\\ntwo\\n three".to_owned(),
            "message=cr\\n".to_owned(),
            "message=last\\n".to_owned(),
        ];
        assert_eq!(events, expected, "in pieces of {size}");
        assert_eq!(decoder.retry(), Some(Duration::from_millis(1500)));
        assert_eq!(decoder.last_id(), None, "an empty id takes it back");
    }
}

#[test]
fn ids_count_once_their_event_is_whole() {
    let mut decoder = Decoder::default();
    // An event without data has an id all the same: streams begin with one.
    assert_eq!(decoder.feed(b"id: a\ndata:\n\n"), []);
    assert_eq!(decoder.last_id(), Some("a"));
    decoder.feed(b"id: b\ndata: x\n");
    assert_eq!(decoder.last_id(), Some("a"));
    decoder.feed(b"\n");
    assert_eq!(decoder.last_id(), Some("b"));
    decoder.feed(b"data: x\n\n");
    assert_eq!(
        decoder.last_id(),
        Some("b"),
        "an event without an id changes nothing"
    );
    decoder.feed(b"id: c\0d\ndata: x\n\n");
    assert_eq!(
        decoder.last_id(),
        Some("b"),
        "an id with a zero byte is none"
    );
    decoder.feed(b"retry: 1x\nretry: \n\n");
    assert_eq!(decoder.retry(), None);
}

#[test]
fn an_event_that_is_too_large_is_told_once_and_the_next_is_read() {
    let long = "x".repeat(50);
    for stream in [
        format!("id: 1\ndata: {long}{long}\ndata: {long}\n\ndata: next\n\n"),
        format!("id: 1\ndata: {long}\ndata: {long}\ndata: {long}\n\ndata: next\n\n"),
        format!("id: 1\n: {long}{long}{long}\r\n\r\ndata: next\r\n\r\n"),
    ] {
        for size in [1, 13, 1_000] {
            let mut decoder = Decoder::with_limit(80);
            let events = datas(fed(&mut decoder, stream.as_bytes(), size));
            assert_eq!(
                events,
                ["too large", "message=next"],
                "{stream} in pieces of {size}"
            );
            assert_eq!(
                decoder.last_id(),
                None,
                "what was passed over is not behind us"
            );
        }
    }
}

#[test]
fn an_id_cannot_add_fields() {
    let message = Message::read(r#"{"jsonrpc":"2.0","method":"x"}"#).unwrap();
    let written = event(&message, Some("7\ndata: more"));
    assert_eq!(
        written,
        "event: message\nid: 7\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\n"
    );
}

proptest! {
    #[test]
    fn any_message_survives_being_an_event(value in wild::value(), blank in wild::space(), size in 1usize..40) {
        let text = format!("{blank}{{{blank}\"jsonrpc\":\"2.0\",\"id\":1,{blank}\"result\":{value}}}");
        let message = Message::read(text).unwrap();
        let events = fed(&mut Decoder::default(), &event(&message, None), size);
        // The space after the colon is not data; those of the message are.
        let expected = Event { kind: "message".to_owned(), data: message.line() };
        prop_assert_eq!(events, [Ok(expected)]);
    }
}

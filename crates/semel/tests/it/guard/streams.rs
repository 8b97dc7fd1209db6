//! Answers that come piece by piece.

use http_body_util::BodyExt as _;

use super::*;

type Pieces = mpsc::Sender<Result<&'static str, &'static str>>;

fn streaming(shop: Shop) -> (Shop, Pieces) {
    let (say, pieces) = mpsc::channel(16);
    (shop.then(Step::Stream(pieces)), say)
}

async fn begun(guard: &Guard, key: &str) -> Response<Body> {
    let request = post(Some(key), "{}");
    let answering = guard.handle(request, Caller::default());
    let answered = tokio::time::timeout(PATIENCE, answering).await;
    answered.expect("the head comes at once").response
}

async fn next(response: &mut Response<Body>) -> Option<Result<Bytes, String>> {
    let frame = tokio::time::timeout(PATIENCE, response.body_mut().frame()).await;
    let frame = frame.expect("something comes")?;
    Some(match frame {
        Ok(frame) => Ok(frame.into_data().expect("no trailers")),
        Err(error) => Err(error.to_string()),
    })
}

#[tokio::test]
async fn c081_a_stream_comes_at_once_is_joined_and_replayed() {
    let engine = engine().await;
    let (shop, say) = streaming(Shop::default());
    let guard = guard(&engine, &shop, rules());
    let mut first = begun(&guard, "k").await;
    say.send(Ok("one ")).await.expect("it is listened to");
    assert_eq!(next(&mut first).await, Some(Ok("one ".into())));
    let mut joined = begun(&guard, "k").await;
    assert_eq!(joined.headers()["idempotent-replayed"], "true");
    assert_eq!(next(&mut joined).await, Some(Ok("one ".into())));
    say.send(Ok("two")).await.expect("it is listened to");
    assert_eq!(next(&mut joined).await, Some(Ok("two".into())));
    assert_eq!(next(&mut first).await, Some(Ok("two".into())));
    drop(say);
    assert_eq!(next(&mut first).await, None);
    assert_eq!(next(&mut joined).await, None);
    let later = ask(&guard, post(Some("k"), "{}")).await;
    assert_eq!((later.body.as_str(), later.is_replay()), ("one two", true));
    assert_eq!(shop.sent(), 1);
}

#[tokio::test]
async fn c082_a_stream_that_breaks_off_does_so_for_everybody() {
    let engine = engine().await;
    let (shop, say) = streaming(Shop::default());
    let guard = guard(&engine, &shop, rules());
    let mut first = begun(&guard, "k").await;
    say.send(Ok("one ")).await.expect("it is listened to");
    assert_eq!(next(&mut first).await, Some(Ok("one ".into())));
    let mut joined = begun(&guard, "k").await;
    assert_eq!(next(&mut joined).await, Some(Ok("one ".into())));
    say.send(Err("gone")).await.expect("it is listened to");
    for reader in [&mut first, &mut joined] {
        assert!(matches!(next(reader).await, Some(Err(_))), "no clean end");
    }
    let later = ask(&guard, post(Some("k"), "{}")).await;
    assert_eq!(later.code(), Some("in_doubt"));
    assert_eq!(shop.sent(), 1);
}

#[tokio::test]
async fn c083_a_stream_whose_reader_left_is_recorded_to_its_end() {
    let engine = engine().await;
    let (shop, say) = streaming(Shop::default());
    let guard = guard(&engine, &shop, rules());
    let mut first = begun(&guard, "k").await;
    say.send(Ok("one ")).await.expect("it is listened to");
    assert_eq!(next(&mut first).await, Some(Ok("one ".into())));
    drop(first);
    say.send(Ok("two")).await.expect("it is listened to");
    drop(say);
    tokio::time::timeout(PATIENCE, guard.drained())
        .await
        .expect("it ends");
    let later = ask(&guard, post(Some("k"), "{}")).await;
    assert_eq!((later.body.as_str(), later.is_replay()), ("one two", true));
}

#[tokio::test]
async fn c080_what_is_too_long_passes_and_is_not_done_again() {
    let engine = engine().await;
    let (shop, say) = streaming(Shop::default());
    let mut rules = rules();
    rules.limits.answer = 10;
    let guard = guard(&engine, &shop, rules);
    let first = tokio::spawn(read(begun(&guard, "k").await));
    for _ in 0..4 {
        say.send(Ok("12345")).await.expect("it is listened to");
    }
    drop(say);
    assert_eq!(first.await.expect("nobody panics").body.len(), 20);
    let later = ask(&guard, post(Some("k"), "{}")).await;
    assert_eq!((later.status, later.code()), (410, Some("expired")));
    assert!(later.body.contains("retained"), "{}", later.body);
    assert!(
        later.body.contains("\"original_status\":200"),
        "{}",
        later.body
    );
    assert_eq!(shop.sent(), 1);
}

#[tokio::test]
async fn long_streams_are_stored_in_pieces_and_come_out_whole() {
    static PIECE: &str = match std::str::from_utf8(&[b'x'; 30_000]) {
        Ok(text) => text,
        Err(_) => "",
    };
    let engine = engine().await;
    let (shop, say) = streaming(Shop::default());
    let guard = guard(&engine, &shop, rules());
    let first = tokio::spawn(read(begun(&guard, "k").await));
    for _ in 0..100 {
        say.send(Ok(PIECE)).await.expect("it is listened to");
    }
    drop(say);
    let first = first.await.expect("nobody panics");
    assert_eq!(first.body.len(), 3_000_000);
    let later = ask(&guard, post(Some("k"), "{}")).await;
    assert_eq!(later.body, first.body);
    assert!(later.is_replay());
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_replayed_at_its_pace() {
    let engine = engine().await;
    let (shop, say) = streaming(Shop::default());
    let mut rules = rules();
    rules.keeps_pace = true;
    let guard = guard(&engine, &shop, rules);
    let first = tokio::spawn(read(begun(&guard, "k").await));
    for piece in ["one ", "two ", "three"] {
        tokio::time::sleep(Duration::from_secs(2)).await;
        say.send(Ok(piece)).await.expect("it is listened to");
    }
    drop(say);
    assert_eq!(first.await.expect("nobody panics").body, "one two three");
    let mut later = begun(&guard, "k").await;
    let from = tokio::time::Instant::now();
    for (piece, seconds) in [("one ", 2), ("two ", 4), ("three", 6)] {
        assert_eq!(next(&mut later).await, Some(Ok(piece.into())));
        assert!(from.elapsed() >= Duration::from_secs(seconds) - Duration::from_millis(10));
    }
    assert_eq!(next(&mut later).await, None);
}

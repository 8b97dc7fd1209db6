//! Tokens: who is let in, for how long, and what is noted of it.

use std::time::Duration;

use semel::core::token::{Granted, NOTED_EVERY, Refusal, Secret, TokenError, TokenState};
use semel::{Engine, Error, Label, Namespace, NewToken, Scope, Token, TokenId, TokenRecord};

use super::on_both_stores;
use super::world::{World, clean};

on_both_stores![
    a_token_is_accepted_until_its_time_is_over,
    a_revoked_token_is_refused_by_every_engine_at_once,
    every_refusal_says_the_same_and_the_log_can_say_why,
    a_use_is_noted_about_once_a_minute_and_nobody_waits_for_it,
    only_accepted_tokens_count_as_used,
    tokens_are_listed_newest_first_behind_their_walls,
    a_token_behind_another_wall_cannot_be_revoked,
    a_token_that_would_expire_at_once_is_not_made,
    two_calls_make_two_tokens,
    tokens_leave_the_ledger_as_it_is,
];

const HOUR: Duration = Duration::from_secs(60 * 60);

fn wall(name: &str) -> Namespace {
    Namespace::new(name).expect("a namespace")
}

fn wanted(namespace: &str) -> NewToken {
    NewToken {
        namespace: wall(namespace),
        scope: Scope::Write,
        label: None,
        expires_in: None,
    }
}

async fn make(engine: &Engine, wanted: NewToken) -> (Token, TokenRecord) {
    let made = engine.create_token(wanted).await;
    made.expect("a token is made")
}

/// Shows a token that must not be accepted.
async fn refused(engine: &Engine, text: &str) -> (Refusal, Error) {
    match engine.authenticate(text).await {
        Err(error) => match &error {
            Error::Unauthorized(refusal) => (*refusal, error),
            other => panic!("{other:?}"),
        },
        Ok(granted) => panic!("it was accepted: {granted:?}"),
    }
}

async fn kept(engine: &Engine, id: TokenId) -> TokenRecord {
    let found = engine.token(id).await.expect("it is looked up");
    found.expect("it is there")
}

/// Lets everything happen that was begun: virtual time goes on only when nothing is left to do.
async fn settled() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

async fn a_token_is_accepted_until_its_time_is_over(world: World) {
    let engine = world.engine().await;
    let lasting = NewToken {
        scope: Scope::Operate,
        label: Some(Label::new("night shift").expect("a label")),
        expires_in: Some(HOUR),
        ..wanted("team-a")
    };
    let (token, record) = make(&engine, lasting).await;
    assert_eq!(record.expires_at, Some(record.created_at.plus(HOUR)));
    assert_eq!(kept(&engine, token.id).await, record);
    let expected = Granted {
        id: token.id,
        namespace: wall("team-a"),
        scope: Scope::Operate,
    };
    for engine in [&engine, &world.another_engine().await] {
        let granted = engine.authenticate(&token.reveal()).await;
        assert_eq!(granted.expect("it is accepted"), expected);
    }
    world.clock.skip(HOUR - Duration::from_secs(1));
    assert!(engine.authenticate(&token.reveal()).await.is_ok());
    world.clock.skip(Duration::from_secs(1));
    let (refusal, _) = refused(&engine, &token.reveal()).await;
    assert_eq!(refusal, Refusal::Expired);
    let now = engine.store().now();
    let kept = kept(&engine, token.id).await;
    assert_eq!(kept.state(now), TokenState::Expired);
}

async fn a_revoked_token_is_refused_by_every_engine_at_once(world: World) {
    let (here, there) = (world.engine().await, world.another_engine().await);
    let (token, _) = make(&here, wanted("team-a")).await;
    let (other, _) = make(&here, wanted("team-a")).await;
    assert!(there.authenticate(&token.reveal()).await.is_ok());
    let at = here.store().now();
    let revoked = here.revoke_token(token.id, None).await;
    let revoked = revoked.expect("it is taken").expect("it was there");
    assert_eq!(
        (revoked.before, revoked.token.revoked_at),
        (false, Some(at))
    );
    for engine in [&here, &there] {
        let (refusal, _) = refused(engine, &token.reveal()).await;
        assert_eq!(refusal, Refusal::Revoked);
        assert!(engine.authenticate(&other.reveal()).await.is_ok());
    }
    world.clock.skip(HOUR);
    let again = there.revoke_token(token.id, Some(&wall("team-a"))).await;
    let again = again.expect("it is taken").expect("it is there");
    assert_eq!((again.before, again.token.revoked_at), (true, Some(at)));
    let nobody = here.revoke_token(TokenId::from_random(1), None).await;
    assert_eq!(nobody.expect("it is answered"), None);
}

async fn every_refusal_says_the_same_and_the_log_can_say_why(world: World) {
    let engine = world.engine().await;
    let (token, _) = make(&engine, wanted("team-a")).await;
    let (revoked, _) = make(&engine, wanted("team-a")).await;
    let gone = engine.revoke_token(revoked.id, None).await;
    gone.expect("it is revoked");
    let short = NewToken {
        expires_in: Some(Duration::from_secs(1)),
        ..wanted("team-a")
    };
    let (expired, _) = make(&engine, short).await;
    world.clock.skip(Duration::from_secs(1));
    let other_secret = Token {
        id: token.id,
        secret: Secret::new([7; 32]),
    };
    let unknown = Token {
        id: TokenId::from_random(7),
        secret: token.secret.clone(),
    };
    let mut cut = token.reveal();
    cut.pop();
    let typed = token.reveal().replace("semel_", "zemel_");
    let shape = Refusal::Malformed(TokenError::Shape);
    for (text, reason) in [
        (cut, shape),
        (typed, shape),
        (String::new(), shape),
        (unknown.reveal(), Refusal::Unknown),
        (other_secret.reveal(), Refusal::WrongSecret),
        (revoked.reveal(), Refusal::Revoked),
        (expired.reveal(), Refusal::Expired),
    ] {
        let (refusal, error) = refused(&engine, &text).await;
        assert_eq!(refusal, reason);
        let told = (
            error.code(),
            error.to_string(),
            error.hint(),
            error.retryable(),
        );
        let message = "there is no token, or it is not a valid one".to_owned();
        let hint = "give a token that the server knows (--token, SEMEL_TOKEN); `semel token create` makes \
                    one where the store is";
        assert_eq!(told, ("unauthorized", message, Some(hint), false));
    }
    assert!(engine.authenticate(&token.reveal()).await.is_ok());
}

async fn a_use_is_noted_about_once_a_minute_and_nobody_waits_for_it(world: World) {
    let engine = world.engine().await;
    let (token, record) = make(&engine, wanted("team-a")).await;
    assert_eq!(record.last_used_at, None);
    let mut noted = vec![];
    for second in 0..150 {
        for _ in 0..3 {
            assert!(engine.authenticate(&token.reveal()).await.is_ok());
        }
        settled().await;
        let last = kept(&engine, token.id).await.last_used_at;
        let last = last.expect("it is noted");
        if noted.last().map(|(_, at)| *at) != Some(last) {
            noted.push((second, last));
        }
        world.clock.skip(Duration::from_secs(1));
    }
    let seconds: Vec<_> = noted.iter().map(|(second, _)| *second).collect();
    assert_eq!(seconds, [0, 60, 120]);
    for pair in noted.windows(2) {
        assert!(pair[1].1.since(pair[0].1) >= NOTED_EVERY);
    }
    // What others have noted counts, too; and a record may be as old as a server's memory of it.
    let there = world.another_engine().await;
    assert!(there.authenticate(&token.reveal()).await.is_ok());
    for _ in 0..3 {
        engine.note_token_use(&record);
    }
    settled().await;
    let last = kept(&engine, token.id).await.last_used_at;
    assert_eq!(last, noted.last().map(|(_, at)| *at));
}

async fn only_accepted_tokens_count_as_used(world: World) {
    let engine = world.engine().await;
    let (token, _) = make(&engine, wanted("team-a")).await;
    let guessed = Token {
        id: token.id,
        secret: Secret::new([7; 32]),
    };
    refused(&engine, &guessed.reveal()).await;
    settled().await;
    assert_eq!(kept(&engine, token.id).await.last_used_at, None);
}

async fn tokens_are_listed_newest_first_behind_their_walls(world: World) {
    let engine = world.engine().await;
    let mut made = vec![];
    for namespace in ["team-a", "team-b", "team-a"] {
        made.push(make(&engine, wanted(namespace)).await.1);
        world.clock.skip(Duration::from_secs(1));
    }
    made.reverse();
    let all = engine.tokens(None).await.expect("they are listed");
    assert_eq!(all, made);
    let behind = engine.tokens(Some(&wall("team-a"))).await;
    let expected = [made[0].clone(), made[2].clone()];
    assert_eq!(behind.expect("they are listed"), expected);
    let nobody = engine.tokens(Some(&wall("team-c"))).await;
    assert_eq!(nobody.expect("they are listed"), []);
}

async fn a_token_behind_another_wall_cannot_be_revoked(world: World) {
    let engine = world.engine().await;
    let (token, _) = make(&engine, wanted("team-a")).await;
    let refused = engine.revoke_token(token.id, Some(&wall("team-b"))).await;
    assert_eq!(refused.expect("it is answered"), None);
    assert!(engine.authenticate(&token.reveal()).await.is_ok());
}

async fn a_token_that_would_expire_at_once_is_not_made(world: World) {
    let engine = world.engine().await;
    let useless = NewToken {
        expires_in: Some(Duration::ZERO),
        ..wanted("team-a")
    };
    let refused = engine.create_token(useless).await;
    assert!(
        matches!(refused, Err(Error::InvalidInput(_))),
        "{refused:?}"
    );
    assert_eq!(engine.tokens(None).await.expect("they are listed"), []);
}

async fn two_calls_make_two_tokens(world: World) {
    let engine = world.engine().await;
    let (first, _) = make(&engine, wanted("team-a")).await;
    let (second, _) = make(&engine, wanted("team-a")).await;
    assert_ne!(first.id, second.id);
    assert_ne!(first.secret.digest(), second.secret.digest());
    assert_eq!(engine.tokens(None).await.expect("listed").len(), 2);
}

async fn tokens_leave_the_ledger_as_it_is(world: World) {
    let engine = world.engine().await;
    let (token, _) = make(&engine, wanted("team-a")).await;
    assert!(engine.revoke_token(token.id, None).await.is_ok());
    assert_eq!(engine.last_entry().await.expect("it has an end"), 0);
    clean(&engine).await;
}

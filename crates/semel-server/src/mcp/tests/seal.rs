use std::time::Duration;

use semel::Timestamp;

use crate::mcp::seal::{Broken, Purpose, Seal};

const NOW: Timestamp = Timestamp(1_794_736_800_000_000);

#[test]
fn a_token_is_known_again_for_its_purpose_its_subject_and_its_time() {
    let (seal, other) = (Seal::new([7; 32]), Seal::new([8; 32]));
    let until = NOW.plus(Duration::from_secs(60));
    let late = until.plus(Duration::from_micros(1));
    let token = seal.issue(Purpose::Plan, &["scope", "f1:00"], until);
    let check = |token: &str, about: &[&str], now| seal.check(token, Purpose::Plan, about, now);
    assert_eq!(check(&token, &["scope", "f1:00"], until), Ok(()));
    assert_eq!(check(&token, &["scope", "f1:00"], late), Err(Broken::Over));
    for about in [
        &["scope", "f1:01"][..],
        &["scop", "ef1:00"],
        &["scope"],
        &[],
    ] {
        assert_eq!(check(&token, about, NOW), Err(Broken::Foreign), "{about:?}");
    }
    let about = &["scope", "f1:00"];
    assert_eq!(
        seal.check(&token, Purpose::Question, about, NOW),
        Err(Broken::Foreign)
    );
    assert_eq!(
        other.check(&token, Purpose::Plan, about, NOW),
        Err(Broken::Foreign)
    );
    // Its end is a part of what is sealed.
    let longer = token.replace(&until.0.to_string(), &late.0.to_string());
    assert_ne!(longer, token);
    assert_eq!(check(&longer, about, NOW), Err(Broken::Foreign));
    for text in [
        "",
        "semel-plan-1",
        "semel-plan-1.",
        "semel-plan-1.x.y",
        "semel-plan-1.5",
        &token[..token.len() - 1],
    ] {
        assert_eq!(check(text, about, NOW), Err(Broken::Foreign), "{text}");
    }
    assert!(Seal::is_for(&token, Purpose::Plan) && !Seal::is_for(&token, Purpose::Question));
    assert!(!Seal::is_for("semel-plan-12.1.2", Purpose::Plan));
    assert_eq!(format!("{seal:?}"), "Seal");
}

#[test]
fn a_name_shows_what_it_names_to_those_who_got_it() {
    let (seal, other) = (Seal::new([7; 32]), Seal::new([8; 32]));
    let name = seal.name(Purpose::Task, "3.mcp/0/k.1", "ann");
    assert!(
        name.starts_with("semel-task-1.") && name.ends_with(".3.mcp/0/k.1"),
        "{name}"
    );
    assert_eq!(seal.named(&name, Purpose::Task, "ann"), Ok("3.mcp/0/k.1"));
    // The same whenever it is made.
    assert_eq!(seal.name(Purpose::Task, "3.mcp/0/k.1", "ann"), name);
    assert_eq!(
        seal.named(&name, Purpose::Task, "bob"),
        Err(Broken::Foreign)
    );
    assert_eq!(seal.named(&name, Purpose::Task, ""), Err(Broken::Foreign));
    assert_eq!(
        seal.named(&name, Purpose::Plan, "ann"),
        Err(Broken::Foreign)
    );
    assert_eq!(
        other.named(&name, Purpose::Task, "ann"),
        Err(Broken::Foreign)
    );
    let another = name.replace("/k.1", "/k.2");
    assert_eq!(
        seal.named(&another, Purpose::Task, "ann"),
        Err(Broken::Foreign)
    );
    for text in ["", "semel-task-1", "semel-task-1.x", "semel-task-1..3.k"] {
        assert_eq!(seal.named(text, Purpose::Task, "ann"), Err(Broken::Foreign));
    }
}

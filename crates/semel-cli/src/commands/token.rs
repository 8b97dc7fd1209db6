//! `semel token`

use std::process::ExitCode;

use semel::core::token::TokenState;
use semel::remote::RemoteStore;
use semel::store::StoreError;
use semel::view::TokenView;
use semel::{Effect, Engine, Error, Label, Namespace, NewToken, Scope, Timestamp, TokenId, span};
use serde_json::{Value, json};

use crate::args::token::{Create, Revoke, Token, TokenVerb};
use crate::context::Context;
use crate::failure::Failure;
use crate::settings::Origin;
use crate::table::{self, Cell};

pub(crate) async fn run(context: &Context, args: &Token) -> Result<ExitCode, Failure> {
    context.prepare().await?;
    match &args.verb {
        TokenVerb::Create(args) => create(context, args).await,
        TokenVerb::List(_) => list(context).await,
        TokenVerb::Revoke(args) => revoke(context, args).await,
    }
}

/// Refuses what a server would refuse: a dry run asks it for nothing.
async fn refuse_without_scope(context: &Context) -> Result<(), Failure> {
    if !context.is_remote() {
        return Ok(());
    }
    let engine = context.open().await?;
    let scope = engine.store().as_remote().map(RemoteStore::scope);
    match scope {
        Some(scope) if !scope.includes(Scope::Admin) => {
            let text =
                format!("this needs a token with the scope `admin`, and this caller has `{scope}`");
            Err(Error::from(StoreError::Forbidden(text)).into())
        }
        Some(_) | None => Ok(()),
    }
}

async fn create(context: &Context, args: &Create) -> Result<ExitCode, Failure> {
    let label = args.label.as_deref().map(Label::new).transpose();
    let wanted = NewToken {
        namespace: context.namespace()?,
        scope: args.scope.into(),
        label: label.map_err(|error| Failure::input(format!("--label: {error}")))?,
        expires_in: args.expires,
    };
    let (namespace, scope) = (wanted.namespace.clone(), wanted.scope);
    if args.dry_run {
        refuse_without_scope(context).await?;
        let until = match wanted.expires_in {
            Some(length) => format!("for {}", span(length)),
            None => "until it is revoked".to_owned(),
        };
        let change = format!("would make a token for {namespace}, scope {scope}, {until}");
        let json = json!({"ok": true, "effect": Effect::WouldCreate.as_str(), "changes": [change]});
        context.printer.answer(&json, &change);
        return Ok(ExitCode::SUCCESS);
    }
    let engine = context.open().await?;
    let (token, record) = engine.create_token(wanted).await?;
    let view = TokenView::of(&record, engine.store().now());
    let mut json = receipt(Effect::Created, None, &view)?;
    let text = token.reveal();
    json["token"] = json!(text);
    context.printer.answer(&json, &text);
    context.printer.note(&format!(
        "token {} for {namespace}, scope {scope}; it cannot be shown again",
        token.id
    ));
    Ok(ExitCode::SUCCESS)
}

async fn list(context: &Context) -> Result<ExitCode, Failure> {
    let engine = context.open_existing().await?;
    let tokens = engine.tokens(wall(context)?.as_ref()).await?;
    let now = engine.store().now();
    let views = tokens.iter().map(|token| TokenView::of(token, now));
    if context.printer.is_json() {
        views.for_each(|view| context.printer.object(&view));
        return Ok(ExitCode::SUCCESS);
    }
    let head = [
        "ID",
        "STATE",
        "SCOPE",
        "NAMESPACE",
        "AGE",
        "EXPIRES",
        "LAST USED",
        "LABEL",
    ];
    let mut rows = vec![head.map(Cell::from)];
    rows.extend(views.map(|view| row(&view, now)));
    if rows.len() > 1 {
        for line in table::lines(&rows) {
            context.printer.line(&line);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn row(view: &TokenView, now: Timestamp) -> [Cell; 8] {
    let ago = |at: Timestamp| format!("{} ago", span(now.since(at)));
    let expires = match view.expires_at {
        None => "never".to_owned(),
        Some(at) if at <= now => ago(at),
        Some(at) => format!("in {}", span(at.since(now))),
    };
    [
        view.id.into(),
        view.state.into(),
        view.scope.into(),
        (&view.namespace).into(),
        span(now.since(view.created_at)).into(),
        expires.into(),
        view.last_used_at
            .map_or_else(|| "never".to_owned(), ago)
            .into(),
        view.label.as_ref().map_or("", Label::as_str).into(),
    ]
}

async fn revoke(context: &Context, args: &Revoke) -> Result<ExitCode, Failure> {
    let wall = wall(context)?;
    let engine = context.open_existing().await?;
    // What is no id is not shown: it may be a token, or most of one.
    let id: TokenId = args.id.parse().map_err(|error| {
        Failure::not_found(format!("there is no such token: {error}")).hint(
            "`semel token list` shows the ids; a token's own stands between its first two `_`",
        )
    })?;
    let unknown = || {
        let place = wall.as_ref().map_or_else(
            || "in this store".to_owned(),
            |namespace| format!("in {namespace}"),
        );
        Failure::not_found(format!("{id}: there is no such token {place}"))
            .hint("`semel token list` shows what there is")
    };
    if args.dry_run {
        return rehearse(context, &engine, id, wall.as_ref())
            .await?
            .ok_or_else(unknown);
    }
    let revoked = engine.revoke_token(id, wall.as_ref()).await?;
    let revoked = revoked.ok_or_else(unknown)?;
    let now = engine.store().now();
    let view = TokenView::of(&revoked.token, now);
    let (effect, line) = if revoked.before {
        (Effect::Noop, already(&view, now))
    } else {
        (Effect::Deleted, "revoked".to_owned())
    };
    let reason = revoked.before.then_some(line.as_str());
    let json = receipt(effect, reason, &view)?;
    context.printer.answer(&json, &format!("{id}: {line}"));
    Ok(ExitCode::SUCCESS)
}

/// Says what revoking would do; `None` when there is no such token.
async fn rehearse(
    context: &Context,
    engine: &Engine,
    id: TokenId,
    wall: Option<&Namespace>,
) -> Result<Option<ExitCode>, Failure> {
    let found = engine.token(id).await?;
    let found = found.filter(|token| wall.is_none_or(|wall| *wall == token.namespace));
    let Some(token) = found else {
        return Ok(None);
    };
    let now = engine.store().now();
    let view = TokenView::of(&token, now);
    let (effect, line) = match token.state(now) {
        TokenState::Revoked => (Effect::Noop, already(&view, now)),
        TokenState::Active | TokenState::Expired => {
            let (namespace, scope) = (&token.namespace, token.scope);
            let change = format!("would revoke it (namespace {namespace}, scope {scope})");
            (Effect::WouldDelete, change)
        }
    };
    let mut json = receipt(effect, None, &view)?;
    let changes = (effect == Effect::WouldDelete).then_some(&line);
    json["changes"] = json!(changes.into_iter().collect::<Vec<_>>());
    context.printer.answer(&json, &format!("{id}: {line}"));
    Ok(Some(ExitCode::SUCCESS))
}

fn already(view: &TokenView, now: Timestamp) -> String {
    let since = view
        .revoked_at
        .map_or_else(Default::default, |at| now.since(at));
    format!("revoked already, {} ago", span(since))
}

/// Returns the wall that was named; without one, all tokens are meant, as ids are the whole store's.
fn wall(context: &Context) -> Result<Option<Namespace>, Failure> {
    match context.settings.origin("namespace") {
        Origin::Default => Ok(None),
        Origin::Flag(_) | Origin::Env(_) | Origin::File(_) => context.namespace().map(Some),
    }
}

/// Makes a receipt about a token.
fn receipt(effect: Effect, reason: Option<&str>, view: &TokenView) -> Result<Value, Failure> {
    let mut json = json!({"ok": true, "effect": effect.as_str(), "reason": reason});
    let view = serde_json::to_value(view).map_err(|error| Failure::internal(error.to_string()))?;
    if let (Some(receipt), Value::Object(view)) = (json.as_object_mut(), view) {
        receipt.extend(view);
    }
    Ok(json)
}

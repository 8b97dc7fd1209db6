//! `semel doctor`

mod checks;
mod files;

use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use serde_json::{Value, json};

use crate::args::look::Doctor;
use crate::context::Context;
use crate::failure::Failure;

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Grade {
    Ok,
    Warn,
    Bad,
}

/// One thing that was looked at.
#[derive(Debug)]
struct Check {
    name: &'static str,
    grade: Grade,
    message: String,
    hint: Option<String>,
}

impl Check {
    fn new(name: &'static str, grade: Grade, message: impl Into<String>) -> Self {
        Self {
            name,
            grade,
            message: message.into(),
            hint: None,
        }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "status": self.grade.word(),
            "message": self.message,
            "hint": self.hint,
        })
    }

    fn line(&self) -> String {
        let style = self.grade.style();
        let word = self.grade.word();
        let (name, message) = (self.name, &self.message);
        let mut line = format!("{style}{word:<4}{style:#}  {name:<11}  {message}");
        if let Some(hint) = &self.hint {
            line.push_str(&format!("\n      {:<11}  hint: {hint}", ""));
        }
        line
    }
}

impl Grade {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }

    fn style(self) -> Style {
        let colour = match self {
            Self::Ok => AnsiColor::Green,
            Self::Warn => AnsiColor::Yellow,
            Self::Bad => AnsiColor::Red,
        };
        Style::new().fg_color(Some(colour.into()))
    }
}

pub(crate) async fn run(context: &Context, args: &Doctor) -> Result<ExitCode, Failure> {
    let limit = match args.doubt_limit {
        Some(limit) => limit,
        None => context.settings.doubt_limit()?,
    };
    let checks = checks::all(context, limit).await;
    let bad = checks.iter().any(|check| check.grade == Grade::Bad);
    if context.printer.is_json() {
        context.printer.object(&json!({
            "ok": !bad,
            "store": context.settings.shown_store(),
            "checks": checks.iter().map(Check::json).collect::<Vec<_>>(),
        }));
    } else {
        for check in &checks {
            context.printer.line(&check.line());
        }
    }
    Ok(if bad {
        ExitCode::from(1)
    } else {
        ExitCode::SUCCESS
    })
}

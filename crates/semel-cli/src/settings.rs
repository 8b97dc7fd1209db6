//! Where values come from when nobody says them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use semel::Error;
use semel::store::StoreError;

/// Returns the store's URL: what was said, or the file in the user's data directory.
pub(crate) fn store_url(said: Option<&str>) -> Result<String, Error> {
    if let Some(url) = said {
        return Ok(url.to_owned());
    }
    let directory = data_directory(|name| std::env::var_os(name)).ok_or_else(|| {
        Error::InvalidInput(
            "there is no home directory; say where the store is with --store".to_owned(),
        )
    })?;
    Ok(format!(
        "sqlite:{}",
        directory.join("semel").join("semel.db").display()
    ))
}

/// Refuses a file that is not there: a command that only looks must not make an empty store, and then
/// say that all is well with it.
pub(crate) fn refuse_missing(url: &str) -> Result<(), Error> {
    match url.strip_prefix("sqlite:").map(Path::new) {
        Some(path) if !path.exists() => {
            let text = format!("there is no store at {}", path.display());
            Err(StoreError::Unavailable(text).into())
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns the user's data directory, as the system's custom is.
fn data_directory(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let named = |name: &str| {
        variable(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(path) = named("XDG_DATA_HOME").filter(|path| path.is_absolute()) {
        return Some(path);
    }
    let home = named("HOME")?;
    let custom = if cfg!(target_os = "macos") {
        "Library/Application Support"
    } else {
        ".local/share"
    };
    Some(home.join(Path::new(custom)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_makes_no_store() {
        let missing = std::env::temp_dir().join("semel-no-such-store.db");
        let refused = refuse_missing(&format!("sqlite:{}", missing.display()));
        let message = refused.expect_err("it is not there").to_string();
        assert!(message.contains("semel-no-such-store.db"), "{message}");
        assert!(!missing.exists());
        assert!(refuse_missing("sqlite:/").is_ok());
    }

    #[test]
    fn the_data_directory_follows_the_systems_custom() {
        let with = |xdg: &'static str, home: &'static str| {
            data_directory(move |name| match name {
                "XDG_DATA_HOME" => Some(xdg.into()),
                "HOME" => Some(home.into()),
                _ => None,
            })
        };
        assert_eq!(with("/data", "/home/a"), Some(PathBuf::from("/data")));
        assert_eq!(with("relative", ""), None);
        #[cfg(target_os = "linux")]
        assert_eq!(
            with("", "/home/a"),
            Some(PathBuf::from("/home/a/.local/share"))
        );
    }
}

//! By what names clients know what several servers have: its own one, unless two servers share it.
//!
//! ```text
//!   shop: charge, refund      bank: charge, balance
//!   ──▶ shop_charge, refund, bank_charge, balance
//! ```

use std::collections::{BTreeMap, BTreeSet};

use semel::core::Digest;

/// What stands between a server's name and the name of its own.
const SEPARATOR: char = '_';

/// The longest name that clients are shown, in bytes: the protocol asks for no more of them.
const NAME_MAX: usize = 128;

/// How many digits of a hash tell two names apart that are the same with their servers' names, too.
const DIGITS: usize = 8;

/// The names of what several servers have.
#[derive(Debug, Default)]
pub(crate) struct Names {
    servers: Vec<String>,
    own: Vec<BTreeSet<String>>,
    shown: BTreeMap<String, Place>,
}

/// Where something is, and by what name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// The number of the server.
    pub(crate) at: usize,
    /// Its name there.
    pub(crate) name: String,
}

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// This.
    At(Place),
    /// One of these, and nobody can say which: these are the names to use.
    Ambiguous(Vec<String>),
    /// Nothing that is known.
    Unknown,
}

/// How a name is written, from the plainest on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Own,
    Prefixed,
    Hashed,
}

impl Names {
    /// Gives everything a name of its own; `reserved` are names that nothing may have.
    pub(crate) fn of(servers: Vec<String>, own: Vec<BTreeSet<String>>, reserved: &[&str]) -> Self {
        let mut forms: BTreeMap<Place, Form> = BTreeMap::new();
        for (at, names) in own.iter().enumerate() {
            for name in names {
                let name = name.clone();
                forms.insert(Place { at, name }, Form::Own);
            }
        }
        // Each round makes at least one name longer, and none can be made longer twice.
        loop {
            let mut by_name: BTreeMap<String, Vec<Place>> = BTreeMap::new();
            for (place, form) in &forms {
                let name = form.write(&servers, place);
                by_name.entry(name).or_default().push(place.clone());
            }
            let mut settled = true;
            for (name, places) in &by_name {
                for place in places {
                    let Some(form) = forms.get_mut(place) else {
                        continue;
                    };
                    let is_long = *form != Form::Own && name.len() > NAME_MAX;
                    let is_taken = places.len() > 1 || reserved.contains(&name.as_str());
                    if (is_taken || is_long) && *form != Form::Hashed {
                        *form = form.longer();
                        settled = false;
                    }
                }
            }
            if settled {
                break;
            }
        }
        let shown = forms.iter();
        let shown = shown.map(|(place, form)| (form.write(&servers, place), place.clone()));
        Self {
            shown: shown.collect(),
            servers,
            own,
        }
    }

    /// Returns the name that clients are shown.
    pub(crate) fn shown(&self, at: usize, name: &str) -> String {
        let place = Place {
            at,
            name: name.to_owned(),
        };
        let forms = [Form::Own, Form::Prefixed, Form::Hashed];
        let mut written = forms
            .map(|form| form.write(&self.servers, &place))
            .into_iter();
        let shown = written.find(|written| self.shown.get(written) == Some(&place));
        shown.unwrap_or(place.name)
    }

    /// Finds out what a name stands for. One with its server's name before it does so, too, where the plain one would
    /// do: the other server's may have gone a moment ago.
    pub(crate) fn find(&self, name: &str) -> Found {
        if let Some(place) = self.shown.get(name) {
            return Found::At(place.clone());
        }
        let mut places = vec![];
        for (at, (server, own)) in self.servers.iter().zip(&self.own).enumerate() {
            let rest = name.strip_prefix(server.as_str());
            let rest = rest.and_then(|rest| rest.strip_prefix(SEPARATOR));
            let known = [Some(name), rest].into_iter().flatten();
            places.extend(known.filter_map(|name| {
                let name = own.get(name)?.clone();
                Some(Place { at, name })
            }));
        }
        match places.as_slice() {
            [] => Found::Unknown,
            [place] => Found::At(place.clone()),
            places => {
                let shown = places.iter().map(|place| self.shown(place.at, &place.name));
                Found::Ambiguous(shown.collect())
            }
        }
    }
}

impl Form {
    const fn longer(self) -> Self {
        match self {
            Self::Own => Self::Prefixed,
            Self::Prefixed | Self::Hashed => Self::Hashed,
        }
    }

    fn write(self, servers: &[String], place: &Place) -> String {
        let Place { at, name } = place;
        let server = servers.get(*at).map_or("", String::as_str);
        match self {
            Self::Own => name.clone(),
            Self::Prefixed => format!("{server}{SEPARATOR}{name}"),
            Self::Hashed => {
                let mut hash = Digest::of_parts(&[server.as_bytes(), b"\0", name.as_bytes()]).hex();
                hash.truncate(DIGITS);
                let room = NAME_MAX.saturating_sub(server.len() + DIGITS + 2);
                let name = &name[..name.floor_char_boundary(room)];
                format!("{server}{SEPARATOR}{name}{SEPARATOR}{hash}")
            }
        }
    }
}

//! The server as those meet it who speak to it from afar.

mod remote;

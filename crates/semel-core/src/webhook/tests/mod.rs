mod ids;
mod setup;
mod signatures;

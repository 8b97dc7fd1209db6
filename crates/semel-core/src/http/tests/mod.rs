mod body;
mod key_field;
mod profile;
mod usage;

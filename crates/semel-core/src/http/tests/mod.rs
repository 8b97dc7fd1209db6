mod body;
mod coding;
mod dated;
mod key_field;
mod profile;
mod pushed;
mod structured_fields;
mod usage;

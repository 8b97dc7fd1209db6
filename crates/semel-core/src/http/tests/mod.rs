mod body;
mod coding;
mod dated;
mod key_field;
mod profile;
mod structured_fields;
mod usage;

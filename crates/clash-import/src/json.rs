//! Reading JSON that must have a certain shape. Anything else is an error with
//! the place: half-understood settings are not imported.

use serde_json::{Map, Value};

use crate::{ImportError, ImportResult};

/// More entries in one list are an attack on the reader, not settings.
pub(crate) const MAX_LIST_ENTRIES: usize = 2048;

pub(crate) type JsonObject = Map<String, Value>;

/// The object of a file; other JSON is an error.
pub(crate) fn parse(text: &str) -> ImportResult<JsonObject> {
    match serde_json::from_str(text).map_err(ImportError::Json)? {
        Value::Object(object) => Ok(object),
        _ => Err(shape("the file", "an object")),
    }
}

/// The error for a value of another type.
pub(crate) fn shape(at: impl Into<String>, expected: &'static str) -> ImportError {
    ImportError::Shape { at: at.into(), expected }
}

/// An object below `key`; absent and `null` are the same, other values are errors.
pub(crate) fn object<'v>(
    parent: &'v JsonObject,
    key: &str,
    at: &str,
) -> ImportResult<Option<&'v JsonObject>> {
    match parent.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => Err(shape(join(at, key), "an object")),
    }
}

/// A truth value below `key`; absent and `null` are the same, other values are errors.
pub(crate) fn boolean(parent: &JsonObject, key: &str, at: &str) -> ImportResult<Option<bool>> {
    match parent.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(value)) => Ok(Some(*value)),
        Some(_) => Err(shape(join(at, key), "true or false")),
    }
}

/// A text below `key`; absent and `null` are the same, other values are errors.
pub(crate) fn string<'v>(
    parent: &'v JsonObject,
    key: &str,
    at: &str,
) -> ImportResult<Option<&'v str>> {
    match parent.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(value)) => Ok(Some(value)),
        Some(_) => Err(shape(join(at, key), "a string")),
    }
}

/// A list below `key`, empty if it is absent or `null`. More than [`MAX_LIST_ENTRIES`] are
/// an error.
pub(crate) fn list<'v>(parent: &'v JsonObject, key: &str, at: &str) -> ImportResult<&'v [Value]> {
    match parent.get(key) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) if items.len() > MAX_LIST_ENTRIES => {
            Err(ImportError::TooMany { what: "entries in one list", limit: MAX_LIST_ENTRIES })
        }
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(shape(join(at, key), "a list")),
    }
}

/// A list of strings, each with its place; empty if it is absent or `null`. Another value
/// is an error.
pub(crate) fn strings<'v>(
    parent: &'v JsonObject,
    key: &str,
    at: &str,
) -> ImportResult<Vec<(String, &'v str)>> {
    let item = |(index, item): (usize, &'v Value)| {
        let place = format!("{}[{index}]", join(at, key));
        match item {
            Value::String(text) => Ok((place, text.as_str())),
            _ => Err(shape(place, "a string")),
        }
    };
    list(parent, key, at)?.iter().enumerate().map(item).collect()
}

/// The place of a key for messages.
pub(crate) fn join(at: &str, key: &str) -> String {
    if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") }
}

//! `merge()`: merges dicts deeply; the rightmost counts.

use starlark::collections::SmallMap;
use starlark::values::dict::{Dict, DictRef};
use starlark::values::list::ListRef;
use starlark::values::tuple::TupleRef;
use starlark::values::{Heap, Value};

use crate::language_error::{LanguageError, LanguageResult};

/// Merges dicts and lists of dicts into a new dict. A tuple key becomes one key for each of
/// its alternatives. Any other value is an error.
pub(crate) fn merge<'v>(trees: &[Value<'v>], heap: Heap<'v>) -> LanguageResult<Value<'v>> {
    let mut merged = SmallMap::new();
    // In older versions rules of the library were a list of trees.
    let flat = trees.iter().flat_map(|tree| match ListRef::from_value(*tree) {
        Some(list) => list.iter().collect(),
        None => vec![*tree],
    });
    for tree in flat {
        let dict = DictRef::from_value(tree).ok_or_else(|| {
            LanguageError::new(format!("merge() takes dicts, found {}", tree.get_type()))
        })?;
        for (key, value) in dict.iter() {
            for key in alternatives(key) {
                put(&mut merged, key, value, heap)?;
            }
        }
    }
    Ok(heap.alloc(Dict::new(merged)))
}

/// The alternatives of a tuple key, apart: another dict may have only one of them.
fn alternatives(key: Value<'_>) -> Vec<Value<'_>> {
    TupleRef::from_value(key).map_or_else(|| vec![key], |tuple| tuple.iter().collect())
}

/// Sets a key. If the old and the new value are dicts, they are merged; otherwise the new
/// value replaces the old one.
fn put<'v>(
    merged: &mut SmallMap<Value<'v>, Value<'v>>,
    key: Value<'v>,
    value: Value<'v>,
    heap: Heap<'v>,
) -> LanguageResult<()> {
    let hashed = key.get_hashed().map_err(|_| {
        LanguageError::new(format!("{} `{}` cannot be a key", key.get_type(), key.to_str()))
    })?;
    let both_dicts = |known: &&Value<'v>| {
        DictRef::from_value(**known).is_some() && DictRef::from_value(value).is_some()
    };
    let value = match merged.get_hashed(hashed.as_ref()).filter(both_dicts) {
        Some(known) => merge(&[*known, value], heap)?,
        None => value,
    };
    merged.insert_hashed(hashed, value);
    Ok(())
}

//! The text of new JSON items, in the layout of their surroundings.

use serde_json::Value;

/// A new member (with a key) or element (without a key).
#[derive(Debug)]
pub(crate) struct NewItem {
    pub(crate) key: Option<&'static str>,
    pub(crate) value: NewValue,
}

/// A new value.
#[derive(Debug, Clone)]
pub(crate) enum NewValue {
    Object(Vec<(&'static str, NewValue)>),
    Array(Vec<NewValue>),
    String(String),
    Number(u32),
    True,
}

/// The white space around new items.
pub(super) enum JsonLayout<'a> {
    Lines { newline: &'static str, indent: String, unit: &'a str },
    Inline { gap: &'a str },
}

impl JsonLayout<'_> {
    /// The white space before an item.
    pub(super) fn gap(&self) -> String {
        match self {
            Self::Lines { newline, indent, .. } => format!("{newline}{indent}"),
            Self::Inline { gap } => (*gap).to_owned(),
        }
    }

    /// The layout one level deeper.
    fn deeper(&self) -> Self {
        match self {
            Self::Lines { newline, indent, unit } => {
                Self::Lines { newline, indent: format!("{indent}{unit}"), unit }
            }
            Self::Inline { gap } => Self::Inline { gap },
        }
    }
}

impl NewItem {
    /// The text of the item.
    pub(super) fn print(&self, layout: &JsonLayout<'_>) -> String {
        match self.key {
            Some(key) => member(key, &self.value, layout),
            None => self.value.print(layout),
        }
    }
}

/// The text of a member.
fn member(key: &str, value: &NewValue, layout: &JsonLayout<'_>) -> String {
    let colon = if matches!(layout, JsonLayout::Inline { gap: "" }) { ":" } else { ": " };
    format!("{}{colon}{}", quote(key), value.print(layout))
}

impl NewValue {
    /// The text of the value. An array of strings stays on one line.
    fn print(&self, layout: &JsonLayout<'_>) -> String {
        let inner = layout.deeper();
        let (open, close, items): (_, _, Vec<String>) = match self {
            Self::String(text) => return quote(text),
            Self::Number(number) => return number.to_string(),
            Self::True => return "true".to_owned(),
            Self::Array(elements) if elements.iter().all(|e| matches!(e, Self::String(_))) => {
                let words: Vec<_> = elements.iter().map(|e| e.print(layout)).collect();
                return format!("[{}]", words.join(", "));
            }
            Self::Array(elements) => ('[', ']', elements.iter().map(|e| e.print(&inner)).collect()),
            Self::Object(members) => {
                ('{', '}', members.iter().map(|(key, value)| member(key, value, &inner)).collect())
            }
        };
        match layout {
            JsonLayout::Lines { .. } => {
                let items: Vec<_> = items.iter().map(|i| format!("{}{i}", inner.gap())).collect();
                format!("{open}{}{}{close}", items.join(","), layout.gap())
            }
            JsonLayout::Inline { gap } => {
                format!("{open}{}{close}", items.join(&format!(",{gap}")))
            }
        }
    }
}

fn quote(text: &str) -> String {
    Value::from(text).to_string()
}

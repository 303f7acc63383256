//! The `tojson` filter as Hugging Face's templates expect it: Python's `json.dumps(value, ensure_ascii=False)` with its keyword
//! arguments, and no HTML escaping.

use std::io::{self, Write};

use minijinja::value::Kwargs;
use minijinja::{Error, ErrorKind, Value};
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

struct PythonFormatter {
    item_separator: String,
    key_separator: String,
    indent: Option<usize>,
    ensure_ascii: bool,
    depth: usize,
    has_items: bool,
}

impl PythonFormatter {
    fn from_kwargs(kwargs: &Kwargs) -> Result<Self, Error> {
        let indent: Option<usize> = kwargs.get("indent")?;
        let separators: Option<Vec<String>> = kwargs.get("separators")?;
        let (item_separator, key_separator) = match separators.as_deref() {
            Some([item, key]) => (item.clone(), key.clone()),
            Some(_) => {
                return Err(Error::new(ErrorKind::InvalidOperation, "tojson: separators must be a pair"))
            }
            None if indent.is_some() => (",".into(), ": ".into()),
            None => (", ".into(), ": ".into()),
        };
        let ensure_ascii = kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
        Ok(PythonFormatter {
            item_separator,
            key_separator,
            indent,
            ensure_ascii,
            depth: 0,
            has_items: false,
        })
    }

    fn new_line<W: ?Sized + Write>(&self, out: &mut W) -> io::Result<()> {
        let Some(indent) = self.indent else { return Ok(()) };
        write!(out, "\n{:1$}", "", indent * self.depth)
    }

    fn open<W: ?Sized + Write>(&mut self, out: &mut W, bracket: &str) -> io::Result<()> {
        self.depth += 1;
        self.has_items = false;
        out.write_all(bracket.as_bytes())
    }

    fn item<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if !first {
            out.write_all(self.item_separator.as_bytes())?;
        }
        self.has_items = true;
        self.new_line(out)
    }

    fn close<W: ?Sized + Write>(&mut self, out: &mut W, bracket: &str) -> io::Result<()> {
        self.depth -= 1;
        if self.has_items {
            self.new_line(out)?;
        }
        self.has_items = true; // of the value that holds this one
        out.write_all(bracket.as_bytes())
    }
}

impl Formatter for PythonFormatter {
    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, "[")
    }
    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, "]")
    }
    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.item(out, first)
    }
    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, "{")
    }
    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, "}")
    }
    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.item(out, first)
    }
    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(self.key_separator.as_bytes())
    }
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        if !self.ensure_ascii {
            return out.write_all(fragment.as_bytes());
        }
        for character in fragment.chars() {
            // Stand-ins for user text (see user_text.rs) are put back later: an escape of one could not be.
            if character.is_ascii() || crate::user_text::is_stand_in(character) {
                write!(out, "{character}")?;
            } else {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}")?;
                }
            }
        }
        Ok(())
    }
}

pub fn tojson(value: Value, kwargs: Kwargs) -> Result<Value, Error> {
    let invalid = |message: String| Error::new(ErrorKind::InvalidOperation, format!("tojson: {message}"));
    let formatter = PythonFormatter::from_kwargs(&kwargs)?;
    let mut json = serde_json::to_value(&value).map_err(|error| invalid(error.to_string()))?;
    if kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false) {
        json.sort_all_objects();
    }
    kwargs.assert_all_used()?;
    let mut out = Vec::new();
    json.serialize(&mut Serializer::with_formatter(&mut out, formatter))
        .map_err(|error| invalid(error.to_string()))?;
    String::from_utf8(out).map(Value::from).map_err(|error| invalid(error.to_string()))
}

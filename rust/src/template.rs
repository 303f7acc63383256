//! Chat templates with Hugging Face's semantics: jinja2 with trim_blocks and lstrip_blocks, Python's string methods, `tojson` without
//! HTML escapes, `raise_exception`, `strftime_now`, and `{% generation %}` blocks (which only mark training text).

use std::error::Error as _;
use std::fmt;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind};
use serde_json::{Map, Value as Json};

use crate::error::{Invalid, Result};
use crate::pyjson::tojson;

/// Steps a rendering may take. A chat of a thousand turns with tools takes some ten thousand; a template that loops for ever is an error.
const MAX_STEPS: u64 = 20_000_000;
const NAME: &str = "chat";

pub struct Template {
    environment: Environment<'static>,
    source: String,
}

/// The text that the template gave to raise_exception: the user's answer, word for word.
#[derive(Debug)]
struct Raised(String);
impl fmt::Display for Raised {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
impl std::error::Error for Raised {}

impl Template {
    pub fn new(source: &str) -> Result<Template> {
        let mut environment = Environment::new();
        environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_fuel(Some(MAX_STEPS));
        environment.add_filter("tojson", tojson);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        environment
            .add_template_owned(NAME, without_generation_tags(source))
            .map_err(|error| Invalid(format!("the chat template does not parse: {}", describe(&error))))?;
        Ok(Template { environment, source: source.to_string() })
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    pub fn render(&self, variables: &Map<String, Json>) -> Result<String> {
        let template = self.environment.get_template(NAME)?;
        template.render(Serde(variables)).map_err(|error| match raised_text(&error) {
            Some(text) => Invalid(text),
            None => Invalid(format!("the chat template failed: {}", describe(&error))),
        })
    }
}

fn raise_exception(message: String) -> std::result::Result<String, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

fn raised_text(error: &Error) -> Option<String> {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(raised) = error.downcast_ref::<Raised>() {
            return Some(raised.0.clone());
        }
        source = error.source();
    }
    None
}

/// The error in one line, with the template's line.
fn describe(error: &Error) -> String {
    let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
    let line = error.line().map(|line| format!(" (template line {line})")).unwrap_or_default();
    format!("{}{detail}{line}", error.kind())
}

/// `{% generation %}` and `{% endgeneration %}` become blocks that always render, so that their whitespace control keeps its effect.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        out.push_str(before);
        let end = tag.find("%}").map_or(tag.len(), |end| end + 2);
        let inner = tag[2..end].trim_end_matches('}').trim_end_matches('%');
        match inner.trim_matches(['-', '+']).trim() {
            "generation" => out.push_str(&tag[..end].replace("generation", "if true")),
            "endgeneration" => out.push_str(&tag[..end].replace("endgeneration", "endif")),
            _ => out.push_str(&tag[..end]),
        }
        rest = &tag[end..];
    }
    out + rest
}

/// Local time, by the C library's strftime as Python has it.
fn strftime_now(format: String) -> std::result::Result<String, Error> {
    let invalid = |what: &str| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {what}"));
    let format = std::ffi::CString::new(format).map_err(|_| invalid("the format holds a NUL"))?;
    let mut buffer = vec![0u8; 1024];
    // SAFETY: `time` takes no pointer here; localtime_r and strftime write into the buffers given, whose sizes they are told or know.
    let size = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut parts: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&now, &mut parts).is_null() {
            return Err(invalid("no local time"));
        }
        libc::strftime(buffer.as_mut_ptr().cast(), buffer.len(), format.as_ptr(), &parts)
    };
    buffer.truncate(size);
    String::from_utf8(buffer).map_err(|_| invalid("the result is not UTF-8"))
}

//! What is refused of a JSON schema before the library compiles it: what the library would silently take for something else, and what
//! would take it too long.

use serde_json::{Map, Value};

use crate::error::{Invalid, Result};

/// Keywords that restrict values in some version of JSON Schema. The library ignores those that are not of the version a schema names,
/// and knows a few of the rest.
const NOT_AVAILABLE: [&str; 21] = [
    "$dynamicRef",
    "$recursiveRef",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "disallow",
    "divisibleBy",
    "else",
    "extends",
    "if",
    "maxContains",
    "minContains",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
    "x-guidance",
    "$vocabulary",
];

/// Each pattern is a regular expression to compile, and patternProperties are compared in pairs.
const MAX_PATTERNS: usize = 200;
const MAX_PATTERN_PROPERTIES: usize = 16;
/// To find out whether a text can match k patterns at once takes up to 2^k steps. There are at most as many at once as the schema has
/// patterns, and places where it says that two things hold of one value.
const MAX_PATTERNS_AT_ONCE: usize = 10;
/// The work grows with the square.
const MAX_PROPERTIES: usize = 500;
const MAX_COUNTED_PROPERTIES: usize = 16;
/// A multiple of k is recognised by k states, one of several numbers by as many as their least common multiple.
const MAX_MULTIPLE: u64 = 10_000;
/// Numbers are compared as doubles.
const TOO_LARGE_INTEGER: f64 = 9_007_199_254_740_992.0;

struct Check {
    patterns: usize,
    pattern_properties: usize,
    conjunctions: usize,
    multiple: u64,
    refs: usize,
    inner_ids: usize,
}

/// Takes out what restricts nothing and the library does not know: `uniqueItems: false`.
pub fn check(schema: &mut Value) -> Result<()> {
    let mut check =
        Check { patterns: 0, pattern_properties: 0, conjunctions: 0, multiple: 1, refs: 0, inner_ids: 0 };
    check.schema(schema, "schema")?;
    if check.patterns.min(check.conjunctions + 1) > MAX_PATTERNS_AT_ONCE {
        return fail(
            "schema",
            format!(
                "{} patterns and formats where schemas are combined {} times, at most {MAX_PATTERNS_AT_ONCE} of one of them",
                check.patterns, check.conjunctions
            ),
        );
    }
    if check.refs > 0 && check.inner_ids > 0 {
        return fail("schema", "$id within a schema that uses $ref is not available");
    }
    Ok(())
}

fn fail<T>(path: &str, what: impl std::fmt::Display) -> Result<T> {
    Err(Invalid(format!("{path}: {what}")))
}

impl Check {
    /// The nesting is limited by the JSON parser.
    fn schema(&mut self, schema: &mut Value, path: &str) -> Result<()> {
        let Value::Object(members) = schema else {
            return if schema.is_boolean() {
                Ok(())
            } else {
                fail(path, "a schema is an object or a boolean")
            };
        };
        members.retain(|key, value| key != "uniqueItems" || *value != Value::Bool(false));
        for (key, value) in members.iter_mut() {
            self.keyword(key, value, path)?;
        }
        self.conjunctions += conjunctions(members);
        check_counts(members, path)
    }

    fn keyword(&mut self, key: &str, value: &mut Value, path: &str) -> Result<()> {
        if NOT_AVAILABLE.contains(&key) {
            return fail(path, format!("the keyword {key} is not available"));
        }
        let inner = format!("{path}.{key}");
        match key {
            "properties" | "patternProperties" | "$defs" | "definitions" => {
                if key == "patternProperties" {
                    self.count_pattern_properties(value, path)?;
                }
                if let Value::Object(schemas) = value {
                    if key == "properties" && schemas.len() > MAX_PROPERTIES {
                        return fail(path, format!("{} properties, at most {MAX_PROPERTIES}", schemas.len()));
                    }
                    for (name, schema) in schemas {
                        if key == "patternProperties" {
                            check_pattern(name, &inner)?;
                        }
                        self.schema(schema, &format!("{inner}.{name}"))?;
                    }
                }
            }
            "items"
            | "additionalItems"
            | "additionalProperties"
            | "prefixItems"
            | "allOf"
            | "anyOf"
            | "oneOf" => self.schemas(value, &inner)?,
            "const" | "enum" => check_literal(value, &inner)?,
            "pattern" => {
                check_pattern(value.as_str().unwrap_or_default(), &inner)?;
                self.count_pattern(path)?
            }
            "format" => self.count_pattern(path)?,
            "multipleOf" => self.count_multiple(value, path)?,
            "$ref" => self.refs += 1,
            "$id" | "id" if path != "schema" => {
                self.inner_ids += usize::from(value.as_str().is_some_and(|id| !id.starts_with('#')))
            }
            _ => {}
        }
        Ok(())
    }

    /// One, or a list of them.
    fn schemas(&mut self, value: &mut Value, path: &str) -> Result<()> {
        match value {
            Value::Array(list) => list.iter_mut().try_for_each(|schema| self.schema(schema, path)),
            one => self.schema(one, path),
        }
    }

    fn count_pattern(&mut self, path: &str) -> Result<()> {
        self.patterns += 1;
        if self.patterns > MAX_PATTERNS {
            return fail(path, format!("more than {MAX_PATTERNS} patterns and formats"));
        }
        Ok(())
    }

    fn count_multiple(&mut self, value: &Value, path: &str) -> Result<()> {
        if value.as_f64().is_some_and(|multiple| multiple <= 0.0) {
            return fail(path, format!("multipleOf {value} must be above 0"));
        }
        let multiple =
            value.as_f64().and_then(digits).and_then(|digits| common_multiple(self.multiple, digits));
        self.multiple = multiple.unwrap_or(u64::MAX);
        if self.multiple > MAX_MULTIPLE {
            return fail(
                path,
                format!("multipleOf {value}: more than {MAX_MULTIPLE} without its decimal point"),
            );
        }
        Ok(())
    }

    fn count_pattern_properties(&mut self, value: &Value, path: &str) -> Result<()> {
        self.pattern_properties += value.as_object().map_or(0, Map::len);
        if self.pattern_properties > MAX_PATTERN_PROPERTIES {
            return fail(path, format!("more than {MAX_PATTERN_PROPERTIES} patternProperties"));
        }
        Ok(())
    }
}

/// How often `members` says that two things hold of one value.
fn conjunctions(members: &Map<String, Value>) -> usize {
    let parts = members.iter().map(|(key, value)| match key.as_str() {
        "allOf" => value.as_array().map_or(0, Vec::len),
        "$ref" | "anyOf" | "oneOf" | "pattern" | "format" | "properties" | "patternProperties" | "items" => 1,
        _ => 0,
    });
    parts.sum::<usize>().saturating_sub(1)
}

fn check_counts(members: &Map<String, Value>, path: &str) -> Result<()> {
    let size = |key: &str| members.get(key).and_then(Value::as_object).map_or(0, Map::len);
    let min = members.get("minProperties").and_then(Value::as_u64);
    if (min.is_some() || members.contains_key("maxProperties")) && size("properties") > MAX_COUNTED_PROPERTIES
    {
        return fail(
            path,
            format!("minProperties and maxProperties with more than {MAX_COUNTED_PROPERTIES} properties"),
        );
    }
    // The library counts members, and two of those with a name of the model's choice may have the same one.
    let required = members.get("required").and_then(Value::as_array).map_or(0, Vec::len);
    match min {
        Some(min) if min > required as u64 + 1 => {
            fail(path, format!("minProperties {min} needs at least {} names in required", min - 1))
        }
        _ => Ok(()),
    }
}

/// The digits of a number, with which the library counts: 25 for 0.25.
fn digits(number: f64) -> Option<u64> {
    format!("{number}").chars().filter(|c| *c != '.').collect::<String>().parse().ok()
}

fn common_multiple(a: u64, b: u64) -> Option<u64> {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x.max(1)).checked_mul(b)
}

/// A value that an answer may have to repeat.
fn check_literal(value: &Value, path: &str) -> Result<()> {
    match value {
        Value::Array(list) => list.iter().try_for_each(|item| check_literal(item, path)),
        Value::Object(members) => members.iter().try_for_each(|(name, item)| {
            name.chars().try_for_each(|c| check_char(c, path))?;
            check_literal(item, path)
        }),
        Value::Number(number) if number.as_f64().is_some_and(|n| n.abs() >= TOO_LARGE_INTEGER) => {
            fail(path, format!("the number {number} is beyond 2^53"))
        }
        Value::String(text) => text.chars().try_for_each(|c| check_char(c, path)),
        _ => Ok(()),
    }
}

/// JSON spells most control characters with \u, which is not among the escapes of answers: the library would leave them out.
fn check_char(c: char, path: &str) -> Result<()> {
    let spelled = matches!(c, '\u{8}' | '\t' | '\n' | '\u{c}' | '\r');
    if c.is_ascii_control() && !spelled {
        return fail(path, format!("the control character U+{:04X} is not available", c as u32));
    }
    Ok(())
}

/// The library drops a backslash that escapes nothing.
pub fn check_regex(regex: &str, path: &str) -> Result<()> {
    if regex.chars().rev().take_while(|c| *c == '\\').count() % 2 == 1 {
        return fail(path, "a backslash at the end escapes nothing");
    }
    Ok(())
}

/// Of the strings of a JSON text: no character may have to come that cannot. In a class, others may come in its place.
fn check_pattern(pattern: &str, path: &str) -> Result<()> {
    check_regex(pattern, path)?;
    let mut in_class = false;
    let mut rest = pattern.chars();
    while let Some(mut c) = rest.next() {
        match c {
            '[' => in_class = true,
            ']' => in_class = false,
            '\\' => c = escaped(&mut rest),
            _ => {}
        }
        if !in_class {
            check_char(c, path)?;
        }
    }
    Ok(())
}

/// The character that an escape behind its backslash stands for; a space for a class of them.
fn escaped(rest: &mut std::str::Chars) -> char {
    let digits = match rest.next() {
        Some('x') => 2,
        Some('u') => 4,
        Some('0') => return '\0',
        _ => return ' ',
    };
    let text = rest.as_str();
    let (number, used) = match text.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
        Some((number, _)) => (number, number.len() + 2),
        None => (text.get(..digits).unwrap_or_default(), digits),
    };
    for _ in 0..used {
        rest.next();
    }
    u32::from_str_radix(number, 16).ok().and_then(char::from_u32).unwrap_or(' ')
}

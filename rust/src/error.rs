/// What the caller did wrong: a bad file, a bad template, a text that is not UTF-8. Shown to users as it is.
#[derive(Debug)]
pub struct Invalid(pub String);

pub type Result<T> = std::result::Result<T, Invalid>;

impl<E: std::fmt::Display> From<E> for Invalid {
    fn from(error: E) -> Self {
        Invalid(error.to_string())
    }
}

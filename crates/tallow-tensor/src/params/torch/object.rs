//! What a pickle of `torch.save` can hold: containers, numbers, texts, and tensors with where their elements are stored.

use std::sync::Arc;

use candle_core::DType;

/// What is wrong with the bytes.
pub(super) type Outcome<T> = std::result::Result<T, String>;

/// The position of an object in [`Pickle::objects`].
pub(super) type Id = usize;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Object {
    None,
    Bool(bool),
    Int(i64),
    Text(Arc<str>),
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    /// A class or function by its full name.
    Class(Arc<str>),
    Storage(Storage),
    Tensor(View),
    /// Anything else: what it is.
    Closed(Arc<str>),
}

/// Where the elements of tensors are stored.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Storage {
    pub(super) key: Arc<str>,
    pub(super) kind: ElementKind,
    /// The first element, for a storage that is a part of another.
    pub(super) start: usize,
    pub(super) elements: usize,
}

/// A tensor: a storage and how to walk it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct View {
    pub(super) storage: Storage,
    pub(super) offset: usize,
    pub(super) shape: Vec<usize>,
    pub(super) strides: Vec<usize>,
}

/// PyTorch's element types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ElementKind {
    pub(super) dtype: DType,
    /// Bytes of an element in the file.
    pub(super) size: usize,
    /// Whether it is stored in a form that candle has.
    pub(super) form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Same,
    /// Signed bytes.
    I8,
}

impl ElementKind {
    pub(super) fn of(class: &str) -> Outcome<Self> {
        let name = class.rsplit('.').next().unwrap_or_default();
        let (dtype, size) = match name {
            "FloatStorage" => (DType::F32, 4),
            "DoubleStorage" => (DType::F64, 8),
            "HalfStorage" => (DType::F16, 2),
            "BFloat16Storage" => (DType::BF16, 2),
            "LongStorage" => (DType::I64, 8),
            "IntStorage" => (DType::I32, 4),
            "ShortStorage" => (DType::I16, 2),
            "ByteStorage" | "BoolStorage" => (DType::U8, 1),
            "CharStorage" => (DType::I64, 1),
            _ => {
                return Err(format!(
                    "its elements are of `{class}`, which can't be read"
                ));
            }
        };
        let form = if name == "CharStorage" {
            Form::I8
        } else {
            Form::Same
        };
        Ok(Self { dtype, size, form })
    }
}

/// What an object is, for messages.
pub(super) fn describe(object: &Object) -> String {
    match object {
        Object::None => "None".to_string(),
        Object::Bool(value) => format!("{value}"),
        Object::Int(value) => format!("the number {value}"),
        Object::Text(text) => format!("the text {:?}", text.chars().take(60).collect::<String>()),
        Object::Tuple(_) => "a tuple".to_string(),
        Object::List(_) => "a list".to_string(),
        Object::Dict(_) => "a dictionary".to_string(),
        Object::Class(name) => format!("the class `{name}`"),
        Object::Storage(_) => "a storage".to_string(),
        Object::Tensor(view) => format!("a tensor {:?}", view.shape),
        Object::Closed(what) => format!("a Python object ({what})"),
    }
}

//! A reader of the part of Python's pickle format that `torch.save` writes. Nothing is ever called: a class is a name, and what is
//! not a container, a number, a text or a tensor stays closed.
//!
//! The opcodes are those of `Lib/pickletools.py`. Objects live in one list and refer to each other by position, so that a
//! hostile file can neither nest deeply nor multiply what it holds: texts are shared, and memory is a multiple of the
//! bytes read.

use std::collections::HashMap;
use std::io::{BufRead, Read};
use std::sync::Arc;

use super::object::{ElementKind, Id, Object, Outcome, Storage, View, describe};

/// More than the pickle of any real file holds, tensors aside.
const MAX_BYTES: u64 = 200_000_000;
/// More than any tensor has dimensions.
const MAX_RANK: usize = 64;
/// More than the full name of any class has bytes.
const MAX_NAME: usize = 1000;

/// What stands on the stack: an object, or the mark at which a group begins.
#[derive(Debug, Clone, Copy)]
enum Slot {
    Object(Id),
    Mark,
}

/// One pickle, read to its end.
pub(super) struct Pickle {
    objects: Vec<Object>,
    root: Id,
}

impl Pickle {
    /// Reads a pickle and leaves `source` behind it.
    pub(super) fn read(source: &mut impl BufRead) -> Outcome<Self> {
        let mut machine = Machine {
            source: source.take(MAX_BYTES),
            objects: Vec::new(),
            stack: Vec::new(),
            memo: HashMap::new(),
        };
        let root = machine.run()?;
        Ok(Self {
            objects: machine.objects,
            root,
        })
    }

    pub(super) fn root(&self) -> &Object {
        &self.objects[self.root]
    }

    pub(super) fn get(&self, id: Id) -> &Object {
        &self.objects[id]
    }

    pub(super) fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// The value of a text key in a dictionary.
    pub(super) fn entry(&self, dict: &Object, key: &str) -> Option<&Object> {
        let Object::Dict(entries) = dict else {
            return None;
        };
        let is_it = |id: Id| matches!(self.get(id), Object::Text(text) if **text == *key);
        let found = entries.iter().rev().find(|(name, _)| is_it(*name));
        found.map(|(_, value)| self.get(*value))
    }
}

struct Machine<R> {
    source: std::io::Take<R>,
    objects: Vec<Object>,
    stack: Vec<Slot>,
    memo: HashMap<u32, Id>,
}

impl<R: BufRead> Machine<R> {
    fn run(&mut self) -> Outcome<Id> {
        loop {
            let [opcode] = self.bytes()?;
            match opcode {
                b'.' => return self.pop(),
                // Of frames and versions nothing depends.
                0x80 => drop(self.bytes::<1>()?),
                0x95 => drop(self.bytes::<8>()?),
                b'(' => self.stack.push(Slot::Mark),
                b'0' => drop(self.stack.pop()),
                b'1' => drop(self.group()?),
                b'2' => {
                    let top = self.top()?;
                    self.stack.push(Slot::Object(top));
                }
                b'c' => {
                    let (module, name) = (self.line()?, self.line()?);
                    self.class(&module, &name)?;
                }
                0x93 => {
                    let (name, module) = (self.pop_text()?, self.pop_text()?);
                    self.class(&module, &name)?;
                }
                b'q' | b'r' | 0x94 | b'h' | b'j' => self.remember(opcode)?,
                b'R' | 0x81 | b'b' | b'Q' => self.construct(opcode)?,
                b't'
                | 0x85..=0x87
                | b')'
                | b']'
                | b'l'
                | b'a'
                | b'e'
                | b'}'
                | b'd'
                | b's'
                | b'u'
                | 0x8f
                | 0x90 => self.contain(opcode)?,
                other => {
                    let object = self.literal(other)?;
                    self.push(object);
                }
            }
        }
    }

    /// Numbers and texts.
    fn literal(&mut self, opcode: u8) -> Outcome<Object> {
        Ok(match opcode {
            b'N' => Object::None,
            0x88 => Object::Bool(true),
            0x89 => Object::Bool(false),
            b'J' => Object::Int(i32::from_le_bytes(self.bytes()?).into()),
            b'K' => Object::Int(self.bytes::<1>()?[0].into()),
            b'M' => Object::Int(u16::from_le_bytes(self.bytes()?).into()),
            0x8a => {
                let [length] = self.bytes()?;
                let bytes = self.take(length.into())?;
                match long(&bytes) {
                    Some(number) => Object::Int(number),
                    None => Object::Closed("a number of more than 64 bits".into()),
                }
            }
            b'G' => {
                self.bytes::<8>()?;
                Object::Closed("a float".into())
            }
            b'X' | b'T' => self.text(4)?,
            0x8c | b'U' => self.text(1)?,
            0x8d => self.text(8)?,
            b'B' | b'C' | 0x8e => {
                let length = self.length(match opcode {
                    b'C' => 1,
                    b'B' => 4,
                    _ => 8,
                })?;
                self.take(length)?;
                Object::Closed("bytes".into())
            }
            other => {
                let shown = std::ascii::escape_default(other);
                return Err(format!(
                    "the pickle operation 0x{other:02x} ({shown}) is none that torch.save writes"
                ));
            }
        })
    }

    /// Tuples, lists, dictionaries and sets.
    fn contain(&mut self, opcode: u8) -> Outcome<()> {
        match opcode {
            b')' => self.push(Object::Tuple(Vec::new())),
            0x85..=0x87 => {
                let mut items = Vec::new();
                for _ in 0x85..=opcode {
                    items.push(self.pop()?);
                }
                items.reverse();
                self.push(Object::Tuple(items));
            }
            b't' => {
                let items = self.group()?;
                self.push(Object::Tuple(items));
            }
            b']' | 0x8f => self.push(Object::List(Vec::new())),
            b'l' => {
                let items = self.group()?;
                self.push(Object::List(items));
            }
            b'a' => {
                let item = self.pop()?;
                self.append(vec![item])?;
            }
            b'e' | 0x90 => {
                let items = self.group()?;
                self.append(items)?;
            }
            b'}' => self.push(Object::Dict(Vec::new())),
            b'd' => {
                let items = self.group()?;
                self.push(Object::Dict(pairs(&items)?));
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set_items(vec![(key, value)])?;
            }
            _ => {
                let items = self.group()?;
                self.set_items(pairs(&items)?)?;
            }
        }
        Ok(())
    }

    fn append(&mut self, items: Vec<Id>) -> Outcome<()> {
        let top = self.top()?;
        match &mut self.objects[top] {
            Object::List(list) => list.extend(items),
            Object::Closed(_) => {}
            other => return Err(format!("items are added to {}", describe(other))),
        }
        Ok(())
    }

    fn set_items(&mut self, items: Vec<(Id, Id)>) -> Outcome<()> {
        let top = self.top()?;
        match &mut self.objects[top] {
            Object::Dict(dict) => dict.extend(items),
            Object::Closed(_) => {}
            other => return Err(format!("entries are added to {}", describe(other))),
        }
        Ok(())
    }

    fn remember(&mut self, opcode: u8) -> Outcome<()> {
        let index = match opcode {
            b'q' | b'h' => self.bytes::<1>()?[0].into(),
            b'r' | b'j' => u32::from_le_bytes(self.bytes()?),
            _ => self.memo.len() as u32,
        };
        if matches!(opcode, b'h' | b'j') {
            let object = self.memo.get(&index);
            let object =
                *object.ok_or_else(|| format!("object {index} is used before it is made"))?;
            self.stack.push(Slot::Object(object));
        } else {
            let top = self.top()?;
            self.memo.insert(index, top);
        }
        Ok(())
    }

    /// What Python would call a function or a class for.
    fn construct(&mut self, opcode: u8) -> Outcome<()> {
        let argument = self.pop()?;
        match opcode {
            b'Q' => {
                let object = self.persistent(argument)?;
                self.push(object);
            }
            // Attributes: `_metadata` of a state dict, the fields of an object that stays closed.
            b'b' => drop(self.top()?),
            _ => {
                let callable = self.pop()?;
                let made = self.call(callable, argument)?;
                self.stack.push(Slot::Object(made));
            }
        }
        Ok(())
    }

    fn call(&mut self, callable: Id, arguments: Id) -> Outcome<Id> {
        let Object::Class(name) = self.objects[callable].clone() else {
            let what = describe(&self.objects[callable]);
            return Ok(self.add(Object::Closed(format!("what {what} gives").into())));
        };
        // More arguments than these count nowhere; a copy of all could be made to cost much.
        let Object::Tuple(arguments) = &self.objects[arguments] else {
            return Ok(self.add(Object::Closed(name)));
        };
        let arguments: Vec<Id> = arguments.iter().copied().take(8).collect();
        match (&*name, arguments.as_slice()) {
            (
                "torch._utils._rebuild_tensor_v2" | "torch._utils._rebuild_tensor",
                [storage, offset, shape, strides, ..],
            ) => {
                let view = self.view(*storage, *offset, *shape, *strides)?;
                Ok(self.add(Object::Tensor(view)))
            }
            ("torch._utils._rebuild_parameter", [data, ..]) => Ok(*data),
            ("torch._tensor._rebuild_from_type_v2", [function, _, arguments, ..]) => {
                match &self.objects[*function] {
                    // One level is all that there is; more would be a way to nest without end.
                    Object::Class(name) if name.starts_with("torch._utils._rebuild_") => {
                        self.call(*function, *arguments)
                    }
                    _ => Ok(self.add(Object::Closed("a tensor of another class".into()))),
                }
            }
            ("collections.OrderedDict", []) => Ok(self.add(Object::Dict(Vec::new()))),
            // As Python 2 wrote it: from a list of pairs.
            ("collections.OrderedDict", &[pairs]) => {
                let entries = self.pairs(pairs)?;
                Ok(self.add(Object::Dict(entries)))
            }
            _ => Ok(self.add(Object::Closed(name))),
        }
    }

    /// The entries of a list of pairs. The list is used up: read again and again, it could be made to cost much.
    fn pairs(&mut self, list: Id) -> Outcome<Vec<(Id, Id)>> {
        let bad = || "it has a dictionary that isn't made of pairs".to_string();
        let Object::List(items) = &mut self.objects[list] else {
            return Err(bad());
        };
        let items = std::mem::take(items);
        let pair = |item: Id| match &self.objects[item] {
            Object::List(pair) | Object::Tuple(pair) => match *pair.as_slice() {
                [key, value] => Ok((key, value)),
                _ => Err(bad()),
            },
            _ => Err(bad()),
        };
        items.into_iter().map(pair).collect()
    }

    /// What stands outside of the pickle: `("storage", class, key, location, elements)`, in old files also with the
    /// `(key, start, elements)` of a part of another; and in old files `("module", class, file, source)`.
    fn persistent(&self, id: Id) -> Outcome<Object> {
        let bad = || "it refers to something that torch.save doesn't write".to_string();
        let Object::Tuple(parts) = &self.objects[id] else {
            return Err(bad());
        };
        let [tag, class, key, rest @ ..] = parts.as_slice() else {
            return Err(bad());
        };
        let (Object::Text(tag), Object::Class(class), Object::Text(key)) = (
            &self.objects[*tag],
            &self.objects[*class],
            &self.objects[*key],
        ) else {
            return Err(bad());
        };
        match (&**tag, rest) {
            ("module", _) => Ok(Object::Class(class.clone())),
            ("storage", [_location, elements, rest @ ..]) => {
                let mut start = 0;
                if let Some(Object::Tuple(part)) = rest.first().map(|id| &self.objects[*id]) {
                    start = self.size(*part.get(1).ok_or_else(bad)?)?;
                }
                Ok(Object::Storage(Storage {
                    key: key.clone(),
                    kind: ElementKind::of(class)?,
                    start,
                    elements: self.size(*elements)?,
                }))
            }
            _ => Err(bad()),
        }
    }

    fn view(&self, storage: Id, offset: Id, shape: Id, strides: Id) -> Outcome<View> {
        let Object::Storage(storage) = &self.objects[storage] else {
            return Err("a tensor has no stored elements".to_string());
        };
        let sizes = |id: Id| match &self.objects[id] {
            Object::Tuple(items) if items.len() <= MAX_RANK => {
                items.iter().map(|item| self.size(*item)).collect()
            }
            other => Err(format!("the shape of a tensor is {}", describe(other))),
        };
        Ok(View {
            storage: storage.clone(),
            offset: self.size(offset)?,
            shape: sizes(shape)?,
            strides: sizes(strides)?,
        })
    }

    fn size(&self, id: Id) -> Outcome<usize> {
        match &self.objects[id] {
            Object::Int(size) => usize::try_from(*size).map_err(|_| format!("a size is {size}")),
            other => Err(format!("a size is {}", describe(other))),
        }
    }

    fn add(&mut self, object: Object) -> Id {
        self.objects.push(object);
        self.objects.len() - 1
    }

    fn push(&mut self, object: Object) {
        let id = self.add(object);
        self.stack.push(Slot::Object(id));
    }

    fn pop(&mut self) -> Outcome<Id> {
        let id = self.top()?;
        self.stack.pop();
        Ok(id)
    }

    fn top(&self) -> Outcome<Id> {
        match self.stack.last() {
            Some(Slot::Object(id)) => Ok(*id),
            _ => Err("an operation of its pickle lacks its operand".to_string()),
        }
    }

    fn class(&mut self, module: &str, name: &str) -> Outcome<()> {
        if module.len() + name.len() > MAX_NAME {
            return Err("the name of a class in its pickle is too long to be one".to_string());
        }
        self.push(Object::Class(format!("{module}.{name}").into()));
        Ok(())
    }

    fn pop_text(&mut self) -> Outcome<Arc<str>> {
        let id = self.pop()?;
        match &self.objects[id] {
            Object::Text(text) => Ok(text.clone()),
            other => Err(format!("the name of a class is {}", describe(other))),
        }
    }

    /// What stands above the last mark, which is removed too.
    fn group(&mut self) -> Outcome<Vec<Id>> {
        let mut items = Vec::new();
        loop {
            match self.stack.pop() {
                Some(Slot::Object(id)) => items.push(id),
                Some(Slot::Mark) => break,
                None => return Err("a group in its pickle has no beginning".to_string()),
            }
        }
        items.reverse();
        Ok(items)
    }

    fn bytes<const N: usize>(&mut self) -> Outcome<[u8; N]> {
        let mut bytes = [0; N];
        self.source.read_exact(&mut bytes).map_err(ends)?;
        Ok(bytes)
    }

    /// As many bytes as there are up to `length`: a claimed length allocates nothing.
    fn take(&mut self, length: u64) -> Outcome<Vec<u8>> {
        let mut bytes = Vec::new();
        self.source
            .by_ref()
            .take(length)
            .read_to_end(&mut bytes)
            .map_err(ends)?;
        if bytes.len() as u64 != length {
            return Err("its pickle ends in the middle of a text".to_string());
        }
        Ok(bytes)
    }

    /// A length of 1, 4 or 8 bytes.
    fn length(&mut self, width: usize) -> Outcome<u64> {
        let mut bytes = [0; 8];
        self.source.read_exact(&mut bytes[..width]).map_err(ends)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn text(&mut self, width: usize) -> Outcome<Object> {
        let length = self.length(width)?;
        let bytes = self.take(length)?;
        Ok(Object::Text(String::from_utf8_lossy(&bytes).into()))
    }

    fn line(&mut self) -> Outcome<String> {
        let mut bytes = Vec::new();
        self.source.read_until(b'\n', &mut bytes).map_err(ends)?;
        match bytes.pop() {
            Some(b'\n') => Ok(String::from_utf8_lossy(&bytes)
                .trim_end_matches('\r')
                .to_string()),
            _ => Err("its pickle ends in the middle of a name".to_string()),
        }
    }
}

fn ends(error: std::io::Error) -> String {
    format!("its pickle ends too early ({error})")
}

fn pairs(items: &[Id]) -> Outcome<Vec<(Id, Id)>> {
    let (pairs, rest) = items.as_chunks::<2>();
    if !rest.is_empty() {
        return Err("a dictionary in its pickle has a key without a value".to_string());
    }
    Ok(pairs.iter().map(|&[key, value]| (key, value)).collect())
}

/// A whole number in as few bytes as it needs, little end first, with a sign; `None` above 64 bits.
fn long(bytes: &[u8]) -> Option<i64> {
    let negative = bytes.last().is_some_and(|last| last & 0x80 != 0);
    let mut padded = [if negative { 0xff } else { 0 }; 8];
    padded.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(i64::from_le_bytes(padded))
}

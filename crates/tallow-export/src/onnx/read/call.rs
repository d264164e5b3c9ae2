//! [`Call`]: one operator with its inputs and attributes, as its reader asks for them.

use std::rc::Rc;

use tallow_graph::NodeId;

use super::{Attributes, Data, Known, Reader, Value};
use crate::onnx::{proto, refused};
use crate::{Error, Result};

/// An operator of the file.
pub(super) struct Call<'a> {
    pub(super) inputs: Vec<Option<Value>>,
    attributes: Attributes<'a>,
    pub(super) outputs: usize,
    /// The name of its first output.
    pub(super) name: String,
    place: (String, String),
}

impl<'a> Call<'a> {
    pub(super) fn new(
        node: &'a proto::Node,
        inputs: Vec<Option<Value>>,
        place: &(String, String),
    ) -> Self {
        let attributes = node.attribute.iter();
        Self {
            inputs,
            attributes: attributes.map(|a| (a.name.as_str(), a)).collect(),
            outputs: node.output.len(),
            name: node.output.first().cloned().unwrap_or_default(),
            place: place.clone(),
        }
    }

    /// Refuses attributes that nobody asked for.
    pub(super) fn finish(&self) -> Result<()> {
        match self.attributes.keys().next() {
            None => Ok(()),
            Some(name) => {
                let problem = format!("has the attribute `{name}`, which isn't read");
                Err(self.refuse(problem, "docs/onnx.md says what is"))
            }
        }
    }

    pub(super) fn refuse(&self, problem: impl Into<String>, remedy: &'static str) -> Error {
        refused(&self.place.0, &self.place.1, problem, remedy)
    }

    /// An attribute that may have any value, since it means nothing in inference.
    pub(super) fn ignore(&mut self, name: &str) {
        self.attributes.remove(name);
    }

    pub(super) fn int(&mut self, name: &str, usual: i64) -> i64 {
        let found = self.attributes.remove(name);
        found.map_or(usual, |attribute| attribute.i.unwrap_or_default())
    }

    pub(super) fn float(&mut self, name: &str, usual: f32) -> f32 {
        let found = self.attributes.remove(name);
        found.map_or(usual, |attribute| attribute.f.unwrap_or_default())
    }

    pub(super) fn text(&mut self, name: &str, usual: &str) -> String {
        let found = self.attributes.remove(name).and_then(|a| a.s.as_deref());
        found.map_or_else(
            || usual.to_string(),
            |text| String::from_utf8_lossy(text).into_owned(),
        )
    }

    pub(super) fn ints(&mut self, name: &str) -> Option<Vec<i64>> {
        self.attributes.remove(name).map(|a| a.ints.clone())
    }

    pub(super) fn attribute(&mut self, name: &str) -> Option<&'a proto::Attribute> {
        self.attributes.remove(name)
    }

    /// An attribute that must be what it usually is.
    pub(super) fn only(&mut self, name: &str, value: i64) -> Result<()> {
        let found = self.int(name, value);
        if found == value {
            return Ok(());
        }
        let problem = format!("has {name} = {found}");
        Err(self.refuse(problem, "it is read with its usual value alone"))
    }

    /// An input that must be there.
    pub(super) fn input(&self, index: usize) -> Result<Value> {
        let found = self.inputs.get(index).cloned().flatten();
        found.ok_or_else(|| self.refuse(format!("lacks input {index}"), "give it"))
    }

    /// An input as a value of the graph.
    pub(super) fn tensor(&self, reader: &mut Reader, index: usize) -> Result<NodeId> {
        reader.tensor(&self.input(index)?)
    }

    pub(super) fn optional(&self, reader: &mut Reader, index: usize) -> Result<Option<NodeId>> {
        let found = self.inputs.get(index).cloned().flatten();
        found.map(|value| reader.tensor(&value)).transpose()
    }

    /// All inputs as values of the graph.
    pub(super) fn tensors(&self, reader: &mut Reader) -> Result<Vec<NodeId>> {
        (0..self.inputs.len())
            .map(|index| self.tensor(reader, index))
            .collect()
    }

    /// An input that is known now, if it is there.
    pub(super) fn known(&self, index: usize, what: &str) -> Result<Option<Rc<Known>>> {
        match self.inputs.get(index).cloned().flatten() {
            None => Ok(None),
            Some(Value::Constant(known)) => Ok(Some(known)),
            Some(_) => Err(self.refuse(
                format!("computes its {what} while it runs"),
                "shapes are static here: make it a constant",
            )),
        }
    }

    /// Integers that are known now.
    pub(super) fn known_ints(&self, index: usize, what: &str) -> Result<Option<Vec<i64>>> {
        let Some(known) = self.known(index, what)? else {
            return Ok(None);
        };
        match &known.data {
            Data::Ints(values) => Ok(Some(values.clone())),
            Data::Floats(_) => Err(self.refuse(format!("has a {what} of floats"), "give integers")),
        }
    }

    /// An input of integers, or the attribute that it was in older operator sets.
    pub(super) fn ints_or_input(&mut self, name: &str, index: usize) -> Result<Option<Vec<i64>>> {
        match self.ints(name) {
            Some(values) => Ok(Some(values)),
            None => self.known_ints(index, name),
        }
    }

    /// A dimension, counted from the end if it is negative.
    pub(super) fn axis(&self, axis: i64, rank: usize) -> Result<usize> {
        let from_end = axis.checked_add(if axis < 0 { rank as i64 } else { 0 });
        let found = from_end.and_then(|axis| usize::try_from(axis).ok());
        found.filter(|&axis| axis < rank).ok_or_else(|| {
            let problem = format!("names the dimension {axis} of {rank}");
            self.refuse(problem, "name one that is there")
        })
    }

    /// A list of sizes or steps.
    pub(super) fn sizes(&self, values: &[i64], what: &str) -> Result<Vec<usize>> {
        let sizes = values.iter().map(|&value| usize::try_from(value).ok());
        sizes.collect::<Option<_>>().ok_or_else(|| {
            let problem = format!("has {what} {values:?}");
            self.refuse(problem, "give numbers of at least 0")
        })
    }
}

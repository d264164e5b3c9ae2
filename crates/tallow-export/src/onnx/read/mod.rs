//! An ONNX file as a program: values, weights and constants; the files beside this one have the operators by family.
//!
//! Everything is checked before it is believed: names, element types, sizes, attributes. An attribute that nobody asked for
//! is refused, so that nothing is silently left out.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::rc::Rc;

use prost::Message;
use tallow_graph::op::{Constant, Input, Literal, Param, ParamKind};
use tallow_graph::{DType, Graph, NodeId, Op, TensorType};

use super::proto::{self, element};
use super::refused;
use crate::freeze::Constants;
use crate::weights::{Elements, Weights};
use crate::{Error, Program, Result, rules};

mod call;
mod constant;
mod elementwise;
mod normalization;
mod product;
mod shape;
mod window;

use call::Call;

/// The operator sets that are understood.
const OPSETS: std::ops::RangeInclusive<i64> = 7..=28;

/// What reads an operator.
type Handler = fn(&mut Reader, &mut Call<'_>) -> Result<Vec<Value>>;

/// Every operator that is read, by name.
const TABLE: &[(&str, Handler)] = &[
    ("Abs", elementwise::abs),
    ("Add", elementwise::add),
    ("AveragePool", window::average_pool),
    ("BatchNormalization", normalization::batch),
    ("Cast", constant::cast),
    ("Clip", elementwise::clip),
    ("Concat", shape::concat),
    ("Constant", constant::constant),
    ("ConstantOfShape", constant::of_shape),
    ("Conv", window::convolution),
    ("Div", elementwise::div),
    ("Dropout", elementwise::dropout),
    ("Erf", elementwise::erf),
    ("Expand", shape::expand),
    ("Flatten", shape::flatten),
    ("Gather", product::gather),
    ("Gelu", elementwise::gelu),
    ("Gemm", product::gemm),
    ("GlobalAveragePool", window::global_average),
    ("GlobalMaxPool", window::global_max),
    ("GroupNormalization", normalization::group),
    ("HardSigmoid", elementwise::hard_sigmoid),
    ("HardSwish", elementwise::hard_swish),
    ("Identity", elementwise::identity),
    ("InstanceNormalization", normalization::instance),
    ("LayerNormalization", normalization::layer),
    ("LeakyRelu", elementwise::leaky_relu),
    ("LogSoftmax", normalization::log_softmax),
    ("MatMul", product::matmul),
    ("MaxPool", window::max_pool),
    ("Mean", elementwise::mean),
    ("Mul", elementwise::mul),
    ("Neg", elementwise::neg),
    ("PRelu", elementwise::prelu),
    ("Pad", shape::pad),
    ("ReduceMean", normalization::reduce_mean),
    ("ReduceSum", normalization::reduce_sum),
    ("Relu", elementwise::relu),
    ("Reshape", shape::reshape),
    ("Resize", window::resize),
    ("Shape", constant::shape),
    ("Sigmoid", elementwise::sigmoid),
    ("Slice", shape::slice),
    ("Softmax", normalization::softmax),
    ("Split", shape::split),
    ("Squeeze", shape::squeeze),
    ("Sub", elementwise::sub),
    ("Sum", elementwise::sum),
    ("Swish", elementwise::swish),
    ("Tanh", elementwise::tanh),
    ("Transpose", shape::transpose),
    ("Unsqueeze", shape::unsqueeze),
];

/// The names of the operators that [`read`] knows; `docs/onnx.md` says what it knows of each.
pub const OPERATORS: [&str; TABLE.len()] = {
    let mut names = [""; TABLE.len()];
    let mut index = 0;
    while index < TABLE.len() {
        names[index] = TABLE[index].0;
        index += 1;
    }
    names
};

/// Reads an ONNX file as a program.
///
/// Shapes have to be static; `shapes` gives those that the file leaves open, by the name of the input.
///
/// ```no_run
/// use tallow_compile::Options;
/// use tallow_export::onnx;
///
/// let program = onnx::read("detector.onnx", &[("image", &[1, 3, 640, 640])])?;
/// let runner = program.compile(Options::default())?;
/// # Ok::<(), tallow_export::Error>(())
/// ```
///
/// # Errors
/// [`Error::Onnx`] for what isn't in [`OPERATORS`] or a form of an operator that isn't read, by the names of operator and
/// node; [`Error::Corrupt`] for a file that is no ONNX model; [`Error::Io`].
pub fn read(path: impl AsRef<Path>, shapes: &[(&str, &[usize])]) -> Result<Program> {
    let path = path.as_ref();
    let bytes = std::fs::read(path).map_err(Error::io("read", path))?;
    let corrupt = |problem: String| Error::Corrupt {
        path: path.to_path_buf(),
        problem,
        remedy: "check that it is an ONNX model, or fetch it again",
    };
    let model = proto::Model::decode(bytes.as_slice());
    let model = model.map_err(|error| corrupt(format!("it can't be decoded ({error})")))?;
    drop(bytes);
    let Some(graph) = &model.graph else {
        return Err(corrupt("it holds no graph".into()));
    };
    let opset = opset(&model)?;
    let program = Reader::new(opset).program(graph, shapes)?;
    rules::check(&program.graphs, &program.weights)?;
    Ok(program)
}

/// The version of ONNX's own operators.
fn opset(model: &proto::Model) -> Result<i64> {
    if let Some(function) = model.functions.first() {
        let problem = "is a function of the file's own";
        let remedy = "inline functions first (onnx.inliner)";
        return Err(refused(&function.name, "", problem, remedy));
    }
    let sets = model.opset_import.iter();
    let own = sets.filter(|set| matches!(set.domain.as_str(), "" | "ai.onnx"));
    let version = own.map(|set| set.version).max().unwrap_or(1);
    if OPSETS.contains(&version) {
        return Ok(version);
    }
    Err(refused(
        "operator set",
        "",
        format!(
            "{version} isn't one of {} to {}",
            OPSETS.start(),
            OPSETS.end()
        ),
        "convert the model with onnx.version_converter",
    ))
}

/// A value while a file is read.
#[derive(Clone)]
enum Value {
    Node(NodeId),
    /// Known now, and part of the graph only where an operation asks for it.
    Constant(Rc<Known>),
    /// `erf(x / √2)`, which the graph has as a part of GELU alone.
    Erf(NodeId),
    /// `1 + erf(x / √2)`.
    ErfPlusOne(NodeId),
    /// `x · (1 + erf(x / √2))`.
    TwiceGelu(NodeId),
}

/// A value that is known while the file is read.
struct Known {
    /// The name of an initializer; it becomes that of a weight.
    name: String,
    shape: Vec<usize>,
    data: Data,
}

enum Data {
    Floats(Vec<f32>),
    Ints(Vec<i64>),
}

struct Reader {
    opset: i64,
    graph: Graph,
    weights: Weights,
    values: HashMap<String, Value>,
    /// Where constants stand in the graph, by their address.
    placed: HashMap<*const Known, (NodeId, Rc<Known>)>,
    /// Values that are another one times a number.
    scaled: HashMap<NodeId, (NodeId, f64)>,
    /// The operator that is being read, and its node's name.
    place: (String, String),
}

impl Reader {
    fn new(opset: i64) -> Self {
        Self {
            opset,
            graph: Graph::default(),
            weights: Weights::default(),
            values: HashMap::new(),
            placed: HashMap::new(),
            scaled: HashMap::new(),
            place: (String::new(), String::new()),
        }
    }

    fn program(mut self, graph: &proto::Graph, shapes: &[(&str, &[usize])]) -> Result<Program> {
        for tensor in &graph.initializer {
            let known = constant::of_tensor(tensor)?;
            let value = Value::Constant(Rc::new(known));
            self.values.insert(tensor.name.clone(), value);
        }
        for input in &graph.input {
            if !self.values.contains_key(&input.name) {
                self.input(input, shapes)?;
            }
        }
        for node in &graph.node {
            self.node(node)?;
        }
        for output in &graph.output {
            self.place = ("output".into(), output.name.clone());
            let value = self.value(&output.name)?;
            let id = self.tensor(&value)?;
            let ty = self.ty(id);
            if ty.dtype != DType::F32 {
                return Err(self.refuse(format!("is {ty}"), "only float is computed with"));
            }
            self.graph.outputs.push(id);
        }
        if self.graph.inputs.is_empty() {
            let remedy = "a program computes something from what it is given";
            return Err(refused("graph", &graph.name, "takes no input", remedy));
        }
        let pruned = rules::prune(&self.graph)?;
        let graph = Constants::default().lift(&pruned, &mut self.weights)?;
        let mut weights = Weights::default();
        for (_, param) in graph.params() {
            if let Some(elements) = self.weights.get(&param.name) {
                weights.insert(param.name.clone(), param.ty.clone(), elements.clone());
            }
        }
        Ok(Program {
            graphs: vec![graph],
            weights,
        })
    }

    fn input(&mut self, info: &proto::ValueInfo, shapes: &[(&str, &[usize])]) -> Result<()> {
        self.place = ("input".into(), info.name.clone());
        let tensor = info.ty.as_ref().and_then(|ty| ty.tensor.as_ref());
        let Some(tensor) = tensor else {
            return Err(self.refuse("is no tensor", "give it as one"));
        };
        let dtype = match tensor.elem_type {
            element::FLOAT => DType::F32,
            element::UINT8 => DType::U8,
            element::UINT32 => DType::U32,
            element::INT64 => DType::I64,
            other => {
                let problem = format!("holds {}", element::name(other));
                return Err(self.refuse(problem, "convert it to float, or indices to int64"));
            }
        };
        let Some(shape) = &tensor.shape else {
            return Err(self.refuse("has no shape", "export the model with static shapes"));
        };
        let given = shapes.iter().find(|(name, _)| *name == info.name);
        let dims = self.input_shape(shape, given.map(|(_, shape)| *shape))?;
        let op = Op::Input(Input {
            name: info.name.clone(),
            ty: TensorType::new(dtype, dims),
        });
        let id = self.put(op, &[])?;
        self.values.insert(info.name.clone(), Value::Node(id));
        Ok(())
    }

    /// The shape that an input says, with what it leaves open from `given`.
    fn input_shape(&self, shape: &proto::Shape, given: Option<&[usize]>) -> Result<Vec<usize>> {
        let stated: Vec<Option<usize>> = shape
            .dim
            .iter()
            .map(|dim| usize::try_from(dim.value?).ok().filter(|&size| size > 0))
            .collect();
        let Some(given) = given else {
            return stated
                .iter()
                .copied()
                .collect::<Option<_>>()
                .ok_or_else(|| {
                    let shown: Vec<String> = stated
                        .iter()
                        .map(|size| size.map_or("?".into(), |size| size.to_string()))
                        .collect();
                    let problem = format!("leaves sizes open: [{}]", shown.join(", "));
                    self.refuse(problem, "give its shape in `shapes`, without a size of 0")
                });
        };
        let fits =
            |(stated, given): (&Option<usize>, &usize)| stated.is_none_or(|size| size == *given);
        match given.len() == stated.len() && stated.iter().zip(given).all(fits) {
            true => Ok(given.to_vec()),
            false => Err(self.refuse(
                format!("has the shape {stated:?}, {given:?} was given"),
                "give the sizes that it leaves open, and keep the others",
            )),
        }
    }

    fn node(&mut self, node: &proto::Node) -> Result<()> {
        self.place = (node.op_type.clone(), node.name.clone());
        let own = matches!(node.domain.as_str(), "" | "ai.onnx");
        let handler = TABLE.iter().find(|(name, _)| own && *name == node.op_type);
        let Some((_, handler)) = handler else {
            let problem = match own {
                true => "isn't one that Tallow reads".to_string(),
                false => format!("is of the domain `{}`", node.domain),
            };
            return Err(self.refuse(problem, "docs/onnx.md lists those that are read"));
        };
        let inputs = node.input.iter().map(|name| match name.as_str() {
            "" => Ok(None),
            name => self.value(name).map(Some),
        });
        let mut call = Call::new(node, inputs.collect::<Result<_>>()?, &self.place);
        let outputs = handler(self, &mut call)?;
        call.finish()?;
        for (index, name) in node.output.iter().enumerate() {
            if name.is_empty() {
                continue;
            }
            let Some(value) = outputs.get(index) else {
                let problem = format!("has output number {index}");
                return Err(self.refuse(problem, "use the first output alone"));
            };
            if self.values.insert(name.clone(), value.clone()).is_some() {
                let problem = format!("makes `{name}`, which is there already");
                return Err(self.refuse(problem, "give every value a name of its own"));
            }
        }
        Ok(())
    }

    fn value(&self, name: &str) -> Result<Value> {
        self.values.get(name).cloned().ok_or_else(|| {
            let problem = format!("reads `{name}`, which nothing before it makes");
            self.refuse(problem, "order the nodes, and export the model whole")
        })
    }

    /// The value as a node of the graph.
    fn tensor(&mut self, value: &Value) -> Result<NodeId> {
        match value {
            Value::Node(id) => Ok(*id),
            Value::Constant(known) => self.place_constant(known),
            Value::Erf(_) | Value::ErfPlusOne(_) | Value::TwiceGelu(_) => Err(Error::Onnx {
                operator: "Erf".into(),
                node: self.place.1.clone(),
                problem: "is read as a part of GELU alone".into(),
                remedy: "use Gelu, or its formula x / √2, Erf, + 1, · x, · 0.5",
            }),
        }
    }

    fn place_constant(&mut self, known: &Rc<Known>) -> Result<NodeId> {
        if let Some((id, _)) = self.placed.get(&Rc::as_ptr(known)) {
            return Ok(*id);
        }
        let ty = |dtype| TensorType::new(dtype, known.shape.clone());
        let named = !known.name.is_empty() && !self.weights.contains(&known.name);
        let op = match &known.data {
            Data::Floats(values) if named => {
                let elements = Elements::Owned(values.as_slice().into());
                self.weights
                    .insert(known.name.clone(), ty(DType::F32), elements);
                Op::Param(Param {
                    name: known.name.clone(),
                    ty: ty(DType::F32),
                    kind: ParamKind::Frozen,
                })
            }
            Data::Floats(values) => Op::Constant(Constant {
                value: Literal::from_f32(known.shape.clone(), values),
            }),
            Data::Ints(values) => Op::Constant(Constant {
                value: Literal {
                    ty: ty(DType::I64),
                    bytes: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
                },
            }),
        };
        let id = self.put(op, &[])?;
        self.placed.insert(Rc::as_ptr(known), (id, known.clone()));
        Ok(id)
    }

    /// Adds an operation on floats.
    fn push(&mut self, op: Op, inputs: &[NodeId]) -> Result<NodeId> {
        let id = self.put(op, inputs)?;
        let ty = self.ty(id);
        if ty.dtype == DType::F32 {
            return Ok(id);
        }
        Err(self.refuse(format!("gives {ty}"), "only float is computed with"))
    }

    /// Adds an operation.
    fn put(&mut self, op: Op, inputs: &[NodeId]) -> Result<NodeId> {
        let scope = self.place.1.replace('/', ".");
        let scope = scope.trim_matches('.');
        let pushed = self.graph.push(op, inputs, scope);
        let id = pushed.map_err(|error| self.refuse(error.to_string(), "check the model"))?;
        match rules::holds(&self.graph.nodes[id.0].output) {
            true => Ok(id),
            false => {
                let problem = format!("gives {}", self.ty(id));
                let remedy = "only values that have elements and fit into memory are read";
                Err(self.refuse(problem, remedy))
            }
        }
    }

    fn ty(&self, id: NodeId) -> TensorType {
        self.graph.nodes[id.0].output.clone()
    }

    fn dims(&self, id: NodeId) -> Vec<usize> {
        self.graph.nodes[id.0].output.shape.clone()
    }

    /// The shape of a value, wherever it is.
    fn shape_of(&mut self, value: &Value) -> Result<Vec<usize>> {
        match value {
            Value::Constant(known) => Ok(known.shape.clone()),
            other => {
                let id = self.tensor(other)?;
                Ok(self.dims(id))
            }
        }
    }

    fn refuse(&self, problem: impl Into<String>, remedy: &'static str) -> Error {
        refused(&self.place.0, &self.place.1, problem, remedy)
    }
}

/// One output.
fn one(id: NodeId) -> Result<Vec<Value>> {
    Ok(vec![Value::Node(id)])
}

/// Attributes by name.
type Attributes<'a> = BTreeMap<&'a str, &'a proto::Attribute>;

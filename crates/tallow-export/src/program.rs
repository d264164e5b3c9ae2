//! [`Program`]: a model's inference as graphs and weights, without the model; [`Runner`]: one that is compiled.

use std::path::Path;

use candle_core::Tensor;
use candle_nn::ModuleT;
use tallow_compile::{CompiledGraph, Metrics, Options, compile_graph};
use tallow_graph::op::Literal;
use tallow_graph::{Graph, Op, TensorType};
use tallow_tensor::convert;

use crate::weights::Weights;
use crate::{Error, Result, file, rules};

/// A model's inference, frozen: a graph for each batch size, and the weights that they share. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Program {
    pub(crate) graphs: Vec<Graph>,
    pub(crate) weights: Weights,
}

impl Program {
    /// Writes the program to one safetensors file, atomically: every weight under its name, the graphs as JSON under the
    /// metadata key `tallow.program`. Any reader of safetensors sees the weights.
    ///
    /// # Errors
    /// [`Error::Tensor`] for what the system refuses; `path` is then as it was.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        file::save(self, path.as_ref())
    }

    /// Opens a program's file, and checks everything that its graphs and the places of its weights say.
    ///
    /// The file is mapped into memory: weights are read when they are needed, where they lie. Leave it alone while the program
    /// or what was compiled from it is in use; replacing it by renaming another file, as [`Program::save`] does, is safe.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a file that isn't a program or is damaged; [`Error::Unsupported`], [`Error::Graph`] and
    /// [`Error::NotInference`] for graphs that no version of Tallow would have saved.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        file::load(path.as_ref())
    }

    /// Compiles every graph. Weights are brought into the form that kernels read when a graph runs first.
    ///
    /// ```
    /// # use candle_core::{DType, Device, Tensor};
    /// use tallow_compile::Options;
    /// use tallow_export::{Program, freeze};
    /// # let params = tallow_tensor::Params::f32_cpu();
    /// # let model = tallow_nn::LeNet5::new(10, params.builder())?;
    /// # let image = Tensor::zeros((1, 1, 28, 28), DType::F32, &Device::Cpu)?;
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("model.safetensors");
    ///
    /// freeze(&model, &image)?.save(&path)?;
    /// let runner = Program::load(&path)?.compile(Options::default())?;
    /// assert_eq!(runner.forward(&image)?.dims(), [1, 10]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// What plans can't run, or options that can't be met.
    pub fn compile(&self, options: Options) -> Result<Runner> {
        let weights = self.weights.bound();
        let compile = |graph: &Graph| compile_graph(graph.clone(), &weights, &options);
        let graphs = self.graphs.iter().map(compile);
        Ok(Runner {
            graphs: graphs.collect::<std::result::Result<_, _>>()?,
        })
    }

    /// Its graphs, one a batch size.
    pub fn graphs(&self) -> &[Graph] {
        &self.graphs
    }

    /// The size of the first dimension of the first input, in each graph; 1 where it has none.
    pub fn batch_sizes(&self) -> Vec<usize> {
        let types = self.graphs.iter().map(rules::input_types);
        let batch = |types: Vec<TensorType>| types.first()?.shape.first().copied();
        types.map(|types| batch(types).unwrap_or(1)).collect()
    }

    /// The program for one of its batch sizes alone, sharing the weights; `None` for a size that it isn't made for.
    pub fn for_batch(&self, size: usize) -> Option<Self> {
        let place = self.batch_sizes().iter().position(|&batch| batch == size)?;
        Some(Self {
            graphs: vec![self.graphs[place].clone()],
            weights: self.weights.clone(),
        })
    }

    /// Name and type of each input, in the first graph.
    pub fn inputs(&self) -> Vec<(String, TensorType)> {
        let graph = self.graphs.first();
        let nodes = graph.into_iter().flat_map(|graph| {
            let ids = graph.inputs.iter();
            ids.filter_map(|id| graph.node(*id))
        });
        let named = nodes.filter_map(|node| match &node.op {
            Op::Input(input) => Some((input.name.clone(), input.ty.clone())),
            _ => None,
        });
        named.collect()
    }

    /// The types of the outputs, in the first graph.
    pub fn outputs(&self) -> Vec<TensorType> {
        let graph = self.graphs.first();
        let nodes = graph.into_iter().flat_map(|graph| {
            let ids = graph.outputs.iter();
            ids.filter_map(|id| graph.node(*id))
        });
        nodes.map(|node| node.output.clone()).collect()
    }

    /// The names of the weights, in the order in which the file holds them.
    pub fn weight_names(&self) -> impl Iterator<Item = &str> {
        self.weights.iter().map(|(name, ..)| name)
    }

    /// A copy of a weight, row-major with its type.
    pub fn weight(&self, name: &str) -> Option<Literal> {
        let ty = self.weights.ty(name)?;
        let elements = self.weights.get(name)?;
        Some(Literal::from_f32(ty.shape.clone(), elements.as_ref()))
    }
}

/// A compiled program. A [`ModuleT`] that only infers; calls from several threads run one after the other.
pub struct Runner {
    graphs: Vec<CompiledGraph>,
}

impl Runner {
    /// The outputs for these inputs.
    ///
    /// # Errors
    /// [`Error::Arguments`] for inputs that no graph of the program is made for; what kernels fail with.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let types = inputs.iter().map(convert::tensor_type);
        let types: Vec<TensorType> = types.collect::<tallow_tensor::Result<_>>()?;
        let fits = |graph: &&CompiledGraph| graph.inputs().iter().map(|(_, ty)| ty).eq(&types);
        match self.graphs.iter().find(fits) {
            Some(graph) => Ok(graph.run(inputs)?),
            None => Err(self.refused(&types)),
        }
    }

    /// The first output for one input.
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        let outputs = self.run(std::slice::from_ref(xs))?;
        outputs
            .into_iter()
            .next()
            .ok_or_else(|| Error::unsupported("the program", "gives nothing", "freeze it again"))
    }

    /// What compilation did and cost, all graphs together. A program never falls back.
    pub fn metrics(&self) -> Metrics {
        let mut sum = Metrics::default();
        for metrics in self.graphs.iter().map(CompiledGraph::metrics) {
            sum.kernels += metrics.kernels;
            sum.compile_time += metrics.compile_time;
            sum.planned_memory += metrics.planned_memory;
        }
        sum
    }

    /// The compiled graphs, one a batch size.
    pub fn graphs(&self) -> &[CompiledGraph] {
        &self.graphs
    }

    fn refused(&self, types: &[TensorType]) -> Error {
        let list = |names: Vec<String>| format!("({})", names.join(", "));
        let of = |graph: &CompiledGraph| {
            let named = graph.inputs().iter();
            list(named.map(|(name, ty)| format!("{name}: {ty}")).collect())
        };
        Error::Arguments {
            found: list(types.iter().map(ToString::to_string).collect()),
            expected: self.graphs.iter().map(of).collect(),
        }
    }
}

impl ModuleT for Runner {
    fn forward_t(&self, xs: &Tensor, train: bool) -> candle_core::Result<Tensor> {
        if train {
            let error = Error::unsupported(
                "a frozen program",
                "can't train",
                "train the model that it was made from, and freeze that again",
            );
            return Err(error.into());
        }
        Ok(self.forward(xs)?)
    }
}

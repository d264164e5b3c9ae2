//! Graphs as a whole: building, rules, counting, text and serde forms.

use tallow_graph::op::*;
use tallow_graph::{Graph, GraphError, Node, NodeId, Op, TensorType};

fn input(name: &str, shape: &[usize]) -> Op {
    Op::Input(Input {
        name: name.into(),
        ty: TensorType::f32(shape),
    })
}

fn param(name: &str, shape: &[usize], kind: ParamKind) -> Op {
    Op::Param(Param {
        name: name.into(),
        ty: TensorType::f32(shape),
        kind,
    })
}

/// A residual block with a classifier, using most kinds of attributes.
fn block() -> Result<Graph, GraphError> {
    let mut g = Graph::default();
    let x = g.push(input("x", &[2, 3, 8, 8]), &[], "")?;
    let w = g.push(
        param("conv1.weight", &[3, 3, 3, 3], ParamKind::Trainable),
        &[],
        "conv1",
    )?;
    let conv = Conv2d {
        padding: [1, 1],
        ..Conv2d::default()
    };
    let y = g.push(Op::Conv2d(conv), &[x, w], "conv1")?;
    let [gamma, beta, mean, var] = [
        g.push(param("bn1.weight", &[3], ParamKind::Trainable), &[], "bn1")?,
        g.push(param("bn1.bias", &[3], ParamKind::Frozen), &[], "bn1")?,
        g.push(
            param("bn1.running_mean", &[3], ParamKind::Buffer),
            &[],
            "bn1",
        )?,
        g.push(
            param("bn1.running_var", &[3], ParamKind::Buffer),
            &[],
            "bn1",
        )?,
    ];
    let bn = BatchNorm {
        eps: 1e-5,
        momentum: 0.1,
        train: true,
    };
    let y = g.push(Op::BatchNorm(bn), &[y, gamma, beta, mean, var], "bn1")?;
    let y = g.push(Op::Relu6, &[y], "")?;
    let y = g.push(Op::Dropout(Dropout { p: 0.2, draw: 0 }), &[y], "")?;
    let scale = Literal::from_f32([1], &[0.5]);
    let scale = g.push(Op::Constant(Constant { value: scale }), &[], "")?;
    let y = g.push(Op::Mul, &[y, scale], "")?;
    let y = g.push(Op::Add, &[y, x], "")?;
    let y = g.push(
        Op::Mean(Mean {
            dims: vec![2, 3],
            keep_dim: false,
        }),
        &[y],
        "pool",
    )?;
    let w = g.push(param("fc.weight", &[4, 3], ParamKind::Trainable), &[], "fc")?;
    let b = g.push(param("fc.bias", &[4], ParamKind::Trainable), &[], "fc")?;
    let logits = g.push(Op::Linear, &[y, w, b], "fc")?;
    g.outputs.push(logits);
    Ok(g)
}

// 20736 for the convolution, 3072 + 768 + 3 · 384 for what follows it element by element, 390 for the mean, 56 for the
// classifier.
const TEXT: &str = r#"graph: 8 operations, 103 parameters, 26174 flops
%0: f32[2, 3, 8, 8] = input("x")
%1: f32[3, 3, 3, 3] = param("conv1.weight")  @ conv1
%2: f32[2, 3, 8, 8] = conv2d(%0, %1, padding=[1, 1])  @ conv1
%3: f32[3] = param("bn1.weight")  @ bn1
%4: f32[3] = param("bn1.bias", kind=Frozen)  @ bn1
%5: f32[3] = param("bn1.running_mean", kind=Buffer)  @ bn1
%6: f32[3] = param("bn1.running_var", kind=Buffer)  @ bn1
%7: f32[2, 3, 8, 8] = batch_norm(%2, %3, %4, %5, %6, eps=1e-5, momentum=0.1, train=true)  @ bn1
%8: f32[2, 3, 8, 8] = relu6(%7)
%9: f32[2, 3, 8, 8] = dropout(%8, p=0.2, draw=0)
%10: f32[1] = constant()
%11: f32[2, 3, 8, 8] = mul(%9, %10)
%12: f32[2, 3, 8, 8] = add(%11, %0)
%13: f32[2, 3] = mean(%12, dims=[2, 3])  @ pool
%14: f32[4, 3] = param("fc.weight")  @ fc
%15: f32[4] = param("fc.bias")  @ fc
%16: f32[2, 4] = linear(%13, %14, %15)  @ fc
return %16"#;

#[test]
fn a_graph_reads_as_stored() -> Result<(), GraphError> {
    assert_eq!(block()?.to_string(), TEXT);
    Ok(())
}

#[test]
fn counting_leaves_buffers_out_and_frozen_parameters_in() -> Result<(), GraphError> {
    let graph = block()?;
    assert_eq!(graph.param_count(), 81 + 3 + 3 + 12 + 4);
    assert_eq!(graph.params().count(), 7);
    assert_eq!(graph.macs(), 2 * 3 * 64 * 27 + 2 * 4 * 3);
    Ok(())
}

#[test]
fn the_serde_form_gives_the_same_graph_back() -> Result<(), Box<dyn std::error::Error>> {
    let graph = block()?;
    let text = serde_json::to_string(&graph)?;
    let back: Graph = serde_json::from_str(&text)?;
    assert_eq!(back, graph);
    back.verify()?;
    assert!(
        text.contains(r#""relu6""#) && text.contains(r#""0000003f""#),
        "{text}"
    );
    Ok(())
}

#[test]
fn damaged_literals_are_refused() {
    for bytes in ["0", "0g", "é"] {
        let text = format!(r#"{{"shape":[1],"dtype":"u8","bytes":"{bytes}"}}"#);
        assert!(serde_json::from_str::<Literal>(&text).is_err(), "{bytes}");
    }
}

#[test]
fn a_refused_push_leaves_the_graph_as_it_was() -> Result<(), GraphError> {
    let mut graph = block()?;
    let before = graph.clone();
    let error = graph.push(Op::Linear, &[NodeId(0), NodeId(14)], "head");
    let text = error.err().map(|e| e.to_string()).unwrap_or_default();
    assert!(
        text.starts_with(
            "node %17 in module `head`: linear(x: f32[2, 3, 8, 8], weight: f32[4, 3]): "
        ),
        "{text}"
    );
    assert!(matches!(
        graph.push(Op::Relu, &[NodeId(17)], ""),
        Err(GraphError::ForwardReference { .. })
    ));
    assert_eq!(graph, before);
    Ok(())
}

/// Verification of a good graph that was changed must fail with a message that has the words.
fn check(change: impl Fn(&mut Graph), words: &[&str]) {
    let mut graph = block().unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(graph.verify(), Ok(()));
    change(&mut graph);
    let text = graph
        .verify()
        .err()
        .map(|e| e.to_string())
        .unwrap_or_default();
    for word in words {
        assert!(text.contains(word), "`{text}` doesn't say `{word}`");
    }
}

#[test]
fn verification_names_node_and_operation() {
    check(
        |g| g.nodes[8].inputs[0] = NodeId(9),
        &["node %8 (relu6)", "reads %9", "before it"],
    );
    check(
        |g| g.nodes[8].inputs[0] = NodeId(8),
        &["node %8 (relu6)", "reads %8"],
    );
    check(
        |g| g.nodes[8].inputs[0] = NodeId(99),
        &["node %8 (relu6)", "reads %99"],
    );
    check(
        |g| g.nodes[8].output.shape[1] = 4,
        &["node %8 (relu6)", "f32[2, 4, 8, 8]", "f32[2, 3, 8, 8]"],
    );
    check(
        |g| g.nodes[16].inputs.truncate(1),
        &["node %16 in module `fc`", "linear(", "1 inputs"],
    );
    check(
        |g| g.nodes[16].inputs[1] = NodeId(1),
        &["node %16", "linear(", "weight: f32[3, 3, 3, 3]"],
    );
    check(
        |g| g.nodes[5].id = NodeId(6),
        &["node %6 (param)", "place 5"],
    );
    check(|g| g.nodes.swap(3, 4), &["node %4 (param)", "place 3"]);
    check(|g| g.outputs[0] = NodeId(17), &["returns %17", "17 nodes"]);
    check(|g| g.outputs.clear(), &["returns nothing"]);
    check(
        |g| g.inputs.clear(),
        &["lists the inputs [], but its input nodes are [%0]"],
    );
    check(|g| g.inputs.push(NodeId(1)), &["lists the inputs"]);
    check(|g| g.inputs.push(NodeId(0)), &["lists the inputs"]);
    check(
        |g| rename(&mut g.nodes[14], "fc.bias"),
        &["node %15 (param)", "`fc.bias`", "node %14"],
    );
}

fn rename(node: &mut Node, name: &str) {
    if let Op::Param(param) = &mut node.op {
        param.name = name.to_string();
    }
}

#[test]
fn inputs_may_be_listed_in_another_order_than_they_stand() -> Result<(), GraphError> {
    let mut graph = Graph::default();
    let a = graph.push(input("a", &[2]), &[], "")?;
    let b = graph.push(input("b", &[2]), &[], "")?;
    let sum = graph.push(Op::Add, &[a, b], "")?;
    graph.outputs.push(sum);
    graph.inputs.reverse();
    graph.verify()
}

#[test]
fn an_input_and_a_parameter_may_share_a_name() -> Result<(), GraphError> {
    let mut graph = Graph::default();
    let a = graph.push(input("x", &[2]), &[], "")?;
    let b = graph.push(param("x", &[2], ParamKind::Trainable), &[], "")?;
    let sum = graph.push(Op::Add, &[a, b], "")?;
    graph.outputs.push(sum);
    graph.verify()
}

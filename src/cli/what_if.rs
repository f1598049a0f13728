//! `gpufence audit --what-if`: what a taint or a label would do to nodes, before anyone gives it to them.

use std::collections::BTreeMap;

use anyhow::anyhow;
use clap::{Args, ValueEnum};

use super::Failure;
use crate::audit::{Change, What, Which};
use crate::policy::{LabelOperator, LabelRequirement, LabelSelector, visible};

/// Which change, and to which nodes.
#[derive(Debug, Args)]
#[command(next_help_heading = "What if")]
pub(super) struct WhatIf {
    /// Say what nodes would come to if they had the contract's taint or label. Nothing is changed
    ///
    /// It answers instead of the findings, and so goes with none of --fail-on, --baseline and --adopt; SARIF, which has
    /// findings alone, does not say it.
    #[arg(
        id = "what_if",
        long = "what-if",
        value_enum,
        value_name = "CHANGE",
        conflicts_with_all = ["fail_on", "baseline", "adopt"]
    )]
    thing: Option<Thing>,

    /// A node that would change; may be repeated [default: the pool's nodes]
    #[arg(long = "node", value_name = "NAME", requires = "what_if", conflicts_with = "selector")]
    nodes: Vec<String>,

    /// The nodes that would change, by their labels, as kubectl takes it: KEY=VALUE,KEY!=VALUE,KEY,!KEY
    #[arg(long, value_name = "SELECTOR", requires = "what_if")]
    selector: Option<String>,

    /// The pool whose taint or label it is, where the contract has several
    #[arg(long, value_name = "NAME", requires = "what_if")]
    pool: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Thing {
    /// The pool's taints, with the contract's effects
    Taint,
    /// The same with the effect `NoExecute`, which evicts
    TaintNoexecute,
    /// The pool's labels
    Label,
}

impl WhatIf {
    /// The change that is asked about, if one is.
    pub(super) fn change(&self) -> Result<Option<Change>, Failure> {
        let Some(thing) = self.thing else { return Ok(None) };
        let what = match thing {
            Thing::Taint => What::Taint,
            Thing::TaintNoexecute => What::TaintNoexecute,
            Thing::Label => What::Label,
        };
        let nodes = match &self.selector {
            Some(selector) => Which::Selected(read(selector).map_err(Failure::Input)?),
            None if self.nodes.is_empty() => Which::OfPool,
            None => Which::Named(self.nodes.clone()),
        };
        Ok(Some(Change { what, nodes, pool: self.pool.clone() }))
    }
}

/// A label selector as `kubectl get --selector` takes it, without the forms with parentheses.
fn read(text: &str) -> anyhow::Result<LabelSelector> {
    let mut match_labels = BTreeMap::new();
    let mut match_expressions = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (key, operator) = if let Some((key, value)) = part.split_once("!=") {
            (key, LabelOperator::NotIn(vec![value.trim().to_owned()]))
        } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
            (key, LabelOperator::In(vec![value.trim().to_owned()]))
        } else if let Some(key) = part.strip_prefix('!') {
            (key, LabelOperator::DoesNotExist)
        } else {
            (part, LabelOperator::Exists)
        };
        let key = key.trim();
        let is_label = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
        if key.is_empty() || !key.chars().all(is_label) {
            return Err(anyhow!(
                "--selector {} cannot be read at {}: expected KEY=VALUE, KEY!=VALUE, KEY or !KEY, with commas between",
                visible(text),
                if part.is_empty() { "an empty part".into() } else { visible(part) }
            ));
        }
        // The same label may be wanted twice, with two values, which no node meets.
        match operator {
            LabelOperator::In(mut values) if values.len() == 1 && !match_labels.contains_key(key) => {
                match_labels.insert(key.to_owned(), values.remove(0));
            }
            operator => match_expressions.push(LabelRequirement { key: key.to_owned(), operator }),
        }
    }
    Ok(LabelSelector { match_labels, match_expressions })
}

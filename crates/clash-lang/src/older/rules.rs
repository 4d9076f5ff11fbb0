//! `exe(…).deny()`, `tool(…).sandbox(x).allow()` and the conditions of
//! `@clash//match_tree.star`. Each becomes a dict of the present language.
#![expect(
    unsafe_code,
    reason = "Starlark's derives implement its unsafe marker trait; none is written by hand"
)]
#![expect(unused_qualifications, clippy::panic, reason = "likewise in derived code")]

use std::fmt;

use allocative::Allocative;
use clash_policy::Effect;
use starlark::collections::SmallMap;
use starlark::environment::{GlobalsBuilder, Methods, MethodsBuilder};
use starlark::eval::Evaluator;
use starlark::values::dict::{Dict, DictRef};
use starlark::values::list::{AllocList, ListRef};
use starlark::values::none::NoneOr;
use starlark::values::tuple::{AllocTuple, UnpackTuple};
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value,
    starlark_value,
};
use starlark::{starlark_module, starlark_simple_value};

use super::endings::endings;
use crate::builders::{span_here, texts};
use crate::language_error::{LanguageError, LanguageResult};
use crate::lower;
use crate::value::{EffectValue, KeyValue, SandboxUse, TextPattern};

/// The subject of a rule that has no effect yet.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
#[allocative(skip)]
pub(crate) struct RuleStart {
    /// The keys of the dict, outermost first, each with its alternatives.
    keys: Vec<Vec<RuleLevel>>,
    sandbox: Option<SandboxUse>,
}
starlark_simple_value!(RuleStart);

/// One alternative of a key of the dict.
#[derive(Clone, Debug)]
enum RuleLevel {
    Text(TextPattern),
    Key(KeyValue),
}

starlark::methods_static!(RULE_METHODS = rule_methods);

#[starlark_value(type = "rule")]
impl<'v> StarlarkValue<'v> for RuleStart {
    fn get_methods() -> Option<&'static Methods> {
        Some(RULE_METHODS.methods())
    }
}

impl fmt::Display for RuleStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("rule without an effect")
    }
}

impl RuleStart {
    /// A rule without a sandbox whose keys are texts and patterns, outermost first.
    fn about(keys: Vec<Vec<TextPattern>>) -> Self {
        let level = |texts: Vec<TextPattern>| texts.into_iter().map(RuleLevel::Text).collect();
        Self { keys: keys.into_iter().map(level).collect(), sandbox: None }
    }

    /// A rule about the words of a command.
    fn command(words: Vec<Vec<TextPattern>>) -> Self {
        let bash = vec![TextPattern::Literal("Bash".to_owned())];
        Self::about([bash].into_iter().chain(words).collect())
    }

    /// The dict with `leaf` below the keys of this rule.
    fn ending<'v>(&self, leaf: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        self.keys.iter().rev().try_fold(leaf, |below, alternatives| {
            let mut keys: Vec<Value<'v>> =
                alternatives.iter().map(|level| key(level, heap)).collect();
            let key = match (keys.pop(), keys.is_empty()) {
                (Some(one), true) => one,
                (Some(last), false) => {
                    keys.push(last);
                    heap.alloc(AllocTuple(keys))
                }
                (None, _) => heap.alloc(KeyValue::Default),
            };
            let mut dict = SmallMap::new();
            dict.insert_hashed(key.get_hashed()?, below);
            Ok(heap.alloc(Dict::new(dict)))
        })
    }

    /// The dict of the rule with its effect. `sandbox` comes before the one of
    /// `.sandbox()`; a deny has none.
    fn saying<'v>(
        &self,
        effect: Effect,
        sandbox: NoneOr<Value<'v>>,
        eval: &Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let sandbox = match sandbox {
            NoneOr::None => self.sandbox.clone(),
            NoneOr::Other(value) => Some(lower::sandbox_arg(value)?),
        };
        // A refused action runs nowhere.
        let sandbox = sandbox.filter(|_| effect != Effect::Deny);
        let effect = EffectValue { sandbox, ..EffectValue::bare(effect, &span_here(eval)) };
        self.ending(eval.heap().alloc(effect), eval.heap())
    }
}

/// The key as a value of the language.
fn key<'v>(level: &RuleLevel, heap: Heap<'v>) -> Value<'v> {
    match level {
        RuleLevel::Text(TextPattern::Literal(text)) => heap.alloc(text.as_str()),
        RuleLevel::Text(TextPattern::Glob(pattern)) => {
            heap.alloc(KeyValue::Glob { pattern: pattern.clone(), follow_worktrees: false })
        }
        RuleLevel::Text(TextPattern::Regex(pattern)) => {
            heap.alloc(KeyValue::Regex(pattern.clone()))
        }
        RuleLevel::Text(TextPattern::Any) => heap.alloc(KeyValue::Default),
        RuleLevel::Key(key) => heap.alloc(key.clone()),
    }
}

/// The rule that a value begins. `tool()`, `mode()` and `agent()`, which are also keys, can
/// begin one; another value is an error.
fn started(value: Value<'_>) -> LanguageResult<RuleStart> {
    if let Some(rule) = RuleStart::from_value(value) {
        return Ok(rule.clone());
    }
    match KeyValue::from_value(value) {
        Some(key @ (KeyValue::Tool(_) | KeyValue::Mode(_) | KeyValue::Agent(_))) => {
            Ok(RuleStart { keys: vec![vec![RuleLevel::Key(key.clone())]], sandbox: None })
        }
        _ => Err(LanguageError::new(format!("`{}` cannot begin a rule", value.to_str()))
            .hint("rules begin with tool(), exe(), mode() or agent()")),
    }
}

/// True if a rule can begin with this value.
pub(super) fn begins_rule(value: Value<'_>) -> bool {
    started(value).is_ok()
}

/// `.allow()`, `.deny()` and `.ask()` of a rule.
pub(super) fn end<'v>(
    this: Value<'v>,
    effect: Effect,
    sandbox: NoneOr<Value<'v>>,
    eval: &Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    started(this)?.saying(effect, sandbox, eval)
}

/// The methods of a started rule: `.sandbox()`, `.on()` and the endings.
fn rule_methods(builder: &mut MethodsBuilder) {
    places(builder);
    endings(builder);
}

/// Registers the methods that narrow a rule or give it a sandbox.
#[starlark_module]
pub(super) fn places(builder: &mut MethodsBuilder) {
    /// The sandbox of the rule.
    fn sandbox<'v>(this: Value<'v>, sandbox: Value<'v>) -> starlark::Result<RuleStart> {
        let sandbox = Some(lower::sandbox_arg(sandbox)?);
        Ok(RuleStart { sandbox, ..started(this)? })
    }

    /// A list of conditions about the further words, each with its effect.
    fn on<'v>(
        this: Value<'v>,
        conditions: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let list = ListRef::from_value(conditions).ok_or_else(|| {
            LanguageError::new(format!("on() takes a list, found `{}`", conditions.to_str()))
        })?;
        let (start, heap) = (started(this)?, eval.heap());
        let mut rules = Vec::new();
        for item in list.iter() {
            let is_rule =
                DictRef::from_value(item).is_some() || EffectValue::from_value(item).is_some();
            if !is_rule {
                return Err(LanguageError::new(format!(
                    "`{}` is no condition with an effect",
                    item.to_str()
                ))
                .hint("write has_arg(\"--force\").deny() or an effect")
                .into());
            }
            rules.push(start.ending(item, heap)?);
        }
        Ok(heap.alloc(AllocList(rules)))
    }
}

/// Registers the starts of a rule in builder form as globals.
#[starlark_module]
pub(super) fn names(builder: &mut GlobalsBuilder) {
    /// A command by its program and first words (older form; today it is a key
    /// below `"Bash"`): `exe("git", args = ["push"]).deny()`.
    fn exe<'v>(
        #[starlark(default = NoneOr::None)] name: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] args: NoneOr<Value<'v>>,
    ) -> starlark::Result<RuleStart> {
        let mut words = Vec::new();
        if let NoneOr::Other(name) = name {
            words.push(texts(name)?);
        }
        if let NoneOr::Other(args) = args {
            let list = ListRef::from_value(args).ok_or_else(|| {
                LanguageError::new(format!("args takes a list, found `{}`", args.to_str()))
                    .hint("args = [\"push\", \"--force\"]")
            })?;
            for word in list.iter() {
                words.push(texts(word)?);
            }
        }
        Ok(RuleStart::command(words))
    }

    /// A command and a tree of what follows it (older form; today the tree stands
    /// below `{"Bash": {"git": …}}`).
    fn cmd<'v>(
        name: Value<'v>,
        tree: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        RuleStart::command(vec![texts(name)?]).ending(tree, eval.heap())
    }
}

/// Names of `@clash//match_tree.star` that are not available without `load()`.
#[starlark_module]
pub(crate) fn match_tree_names(builder: &mut GlobalsBuilder) {
    /// An option anywhere among the words of a command. Other words are an error.
    fn has_arg<'v>(pattern: Value<'v>) -> starlark::Result<RuleStart> {
        let texts = texts(pattern)?;
        let is_option = |text: &TextPattern| matches!(text, TextPattern::Literal(word) if word.starts_with('-'));
        if !texts.iter().all(is_option) {
            return Err(LanguageError::new(format!("has_arg() of `{}` is no option", pattern.to_str()))
                .hint("only options match anywhere; words stand in order: exe(\"git\", args = [\"push\"])")
                .near(pattern.to_str())
                .into());
        }
        Ok(RuleStart::about(vec![texts]))
    }

    /// The first word after the program. Other numbers than 1 are an error.
    fn arg<'v>(n: i32, pattern: Value<'v>) -> starlark::Result<RuleStart> {
        if n != 1 {
            return Err(LanguageError::new(format!("arg({n}, …) needs the words before it"))
                .hint("name the words before it: exe(\"git\", args = [\"remote\", \"add\"])")
                .into());
        }
        Ok(RuleStart::about(vec![texts(pattern)?]))
    }

    /// A field of a tool's input.
    fn named<'v>(name: &str, pattern: Value<'v>) -> starlark::Result<RuleStart> {
        Ok(RuleStart::about(vec![vec![TextPattern::Literal(name.to_owned())], texts(pattern)?]))
    }

    /// A nested field of a tool's input.
    fn field<'v>(path: Value<'v>, pattern: Value<'v>) -> starlark::Result<RuleStart> {
        let names: Vec<&str> = ListRef::from_value(path)
            .map(|list| list.iter().filter_map(|name| name.unpack_str()).collect())
            .unwrap_or_default();
        if names.is_empty() {
            return Err(LanguageError::new("field() takes a list of names").into());
        }
        Ok(RuleStart::about(vec![vec![TextPattern::Literal(names.join("."))], texts(pattern)?]))
    }

    /// A regular expression.
    fn mt_regex(pattern: &str) -> starlark::Result<KeyValue> {
        crate::regex::compile(pattern)?;
        Ok(KeyValue::Regex(pattern.to_owned()))
    }

    /// Any of several patterns.
    fn or_pat<'v>(
        #[starlark(args)] patterns: UnpackTuple<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        Ok(eval.heap().alloc(AllocTuple(patterns.items)))
    }

    /// Everything but a pattern. No rule can express this, so it fails with a hint.
    fn not_pat<'v>(pattern: Value<'v>) -> starlark::Result<KeyValue> {
        Err(LanguageError::new(format!("not_pat({}) has no form in a policy", pattern.to_repr()))
            .hint("write a rule for the exception and one for glob(\"**\")")
            .into())
    }
}

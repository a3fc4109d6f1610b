//! How our own kinds are defined: one Rust struct, with constants beside it, yields the type, its
//! CustomResourceDefinition (structural schema, CEL rules, printer columns, short names, categories) and its reference
//! page.
//!
//! A new kind is a file with a spec, a status and one [`kind!`]. Doc comments become descriptions, `#[schemars(...)]`
//! sets limits, and a rule that a schema cannot express is a [`Cel`] in `x-kubernetes-validations` of the struct that
//! it is about. The kind is then added to a list of [`crate::crds`].
//!
//! What it is not: the kinds of OpenShift's API, whose published schemas are data (see `schemas/`).
//!
//! Sources: <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/> (structural
//! schemas, printer columns) and <https://kubernetes.io/docs/reference/using-api/cel/> (CEL).

pub(crate) mod resource;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// A rule that a schema cannot express: the API server refuses what breaks it, with its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cel {
    /// The rule, in CEL; `self` is the value that it is put on.
    pub rule: &'static str,
    /// What is wrong and what to do, for readers of the API server's answer.
    pub message: &'static str,
}

/// What a printer column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ColumnType {
    /// Text.
    String,
    /// A whole number.
    Integer,
    /// A time, shown as an age.
    Date,
}

/// A column of `kubectl get`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Column {
    /// Its heading.
    pub name: &'static str,
    /// What it holds.
    #[serde(rename = "type")]
    pub type_: ColumnType,
    /// The JSON path of the value.
    pub json_path: &'static str,
    /// What it says, for `kubectl explain` and the reference.
    pub description: &'static str,
    /// 0: always shown; more: with `-o wide` only.
    #[serde(skip_serializing_if = "is_zero")]
    pub priority: i32,
}

fn is_zero(n: &i32) -> bool {
    *n == 0
}

impl Column {
    /// A column of text.
    pub const fn text(name: &'static str, json_path: &'static str, description: &'static str) -> Self {
        Self { name, type_: ColumnType::String, json_path, description, priority: 0 }
    }

    /// How long ago an object was made.
    pub const AGE: Self = Self {
        name: "Age",
        type_: ColumnType::Date,
        json_path: ".metadata.creationTimestamp",
        description: "The time since it was created.",
        priority: 0,
    };

    /// The same column, with `-o wide` only.
    #[must_use]
    pub const fn wide_only(self) -> Self {
        Self { priority: 1, ..self }
    }
}

/// Everything of a kind that its Rust types do not say.
#[derive(Debug, Clone, Copy)]
pub struct Definition {
    /// `MachineConfigPool` and the like.
    pub kind: &'static str,
    /// The API group.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The name in URLs.
    pub plural: &'static str,
    /// The name of one object for `kubectl`.
    pub singular: &'static str,
    /// Shorter ones.
    pub short_names: &'static [&'static str],
    /// Groups of kinds that `kubectl get` lists together.
    pub categories: &'static [&'static str],
    /// Columns of `kubectl get`, after the name.
    pub columns: &'static [Column],
    /// Rules about the object as a whole, such as its name.
    pub rules: &'static [Cel],
    /// What the kind is.
    pub description: &'static str,
}

/// A kind of our own: cluster-scoped, with a status that has writers of its own.
pub trait Defined {
    /// What is wanted.
    type Spec: JsonSchema;
    /// What is.
    type Status: JsonSchema;
    /// The rest.
    const DEFINITION: Definition;
}

/// Makes a kind of our own of its spec and status: the root struct (see [`crate::definition::resource`]) and its [`Definition`].
macro_rules! kind {
    (
        $(#[doc = $doc:literal])*
        $kind:ident {
            spec: $spec:ty, status: $status:ty,
            group: $group:literal, version: $version:literal, plural: $plural:literal, singular: $singular:literal,
            short_names: $short_names:expr, categories: $categories:expr, columns: $columns:expr,
            $(rules: $rules:expr,)?
        }
    ) => {
        $crate::definition::resource::resource!($(#[doc = $doc])* $kind, $spec, $status, $group, $version, $plural);

        impl $crate::definition::Defined for $kind {
            type Spec = $spec;
            type Status = $status;
            const DEFINITION: $crate::definition::Definition = $crate::definition::Definition {
                kind: stringify!($kind),
                group: $group,
                version: $version,
                plural: $plural,
                singular: $singular,
                short_names: &$short_names,
                categories: &$categories,
                columns: &$columns,
                rules: &[$($rules)?],
                description: concat!($($doc, "\n"),*),
            };
        }
    };
}
pub(crate) use kind;

/// The CustomResourceDefinition of a kind.
pub fn crd<K: Defined>() -> Value {
    let Definition {
        kind,
        group,
        version,
        plural,
        singular,
        short_names,
        categories,
        columns,
        rules,
        description,
    } = K::DEFINITION;
    let mut names = json!({
        "kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular,
    });
    for (key, list) in [("shortNames", short_names), ("categories", categories)] {
        if !list.is_empty() {
            names[key] = json!(list);
        }
    }
    let mut schema = json!({
        "description": sentence(description),
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": structural::<K::Spec>(),
            "status": structural::<K::Status>(),
        },
    });
    if !rules.is_empty() {
        schema["x-kubernetes-validations"] = json!(rules);
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "names": names,
            "scope": "Cluster",
            "versions": [{
                "name": version,
                "served": true,
                "storage": true,
                "additionalPrinterColumns": columns,
                "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}},
            }],
        },
    })
}

/// The lines of a doc comment as one text.
fn sentence(lines: &str) -> String {
    lines.lines().map(str::trim).collect::<Vec<_>>().join(" ").trim().to_owned()
}

/// The structural schema of a type: no references, no null, and enums as lists of words.
pub fn structural<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|s| s.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    tidy(&mut schema);
    schema
}

/// Makes a part of a schema structural. For objects of the Kubernetes API, such as a label selector, our types provide
/// the schema themselves.
fn tidy(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    for key in ["$schema", "title", "nullable", "components"] {
        fields.remove(key);
    }
    if fields.get("default").is_some_and(Value::is_null) {
        fields.remove("default");
    }
    // An optional field may be left out, so the alternative null is dropped.
    for key in ["anyOf", "allOf"] {
        if let Some(Value::Array(parts)) = fields.remove(key) {
            merge(fields, parts.into_iter().find(|p| p.get("enum") != Some(&json!([null]))));
        }
    }
    if let Some(Value::Array(words)) = fields.remove("oneOf") {
        words_of(fields, &words);
    }
    for (key, value) in fields.iter_mut() {
        match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => properties.values_mut().for_each(tidy),
            ("items" | "additionalProperties", inner) => tidy(inner),
            _ => {}
        }
    }
}

/// Adds the fields of a part to those that exist already: what a field declares itself overrides what its type
/// declares.
fn merge(fields: &mut Map<String, Value>, part: Option<Value>) {
    let Some(Value::Object(part)) = part else { return };
    for (key, value) in part {
        fields.entry(key).or_insert(value);
    }
    // The part itself may have the same forms.
    let mut whole = Value::Object(std::mem::take(fields));
    tidy(&mut whole);
    if let Value::Object(whole) = whole {
        *fields = whole;
    }
}

/// An enum of words, with the meaning of each in the description.
fn words_of(fields: &mut Map<String, Value>, parts: &[Value]) {
    let mut words = vec![];
    let mut text = fields.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
    for part in parts {
        let some = part.get("enum").and_then(Value::as_array).cloned();
        let here = some.unwrap_or_else(|| part.get("const").cloned().into_iter().collect());
        if let (Some(Value::String(word)), Some(meaning)) = (here.first(), part["description"].as_str()) {
            text += &format!("\n- `{word}`: {meaning}");
        }
        words.extend(here);
    }
    fields.insert("type".to_owned(), json!("string"));
    fields.insert("enum".to_owned(), Value::Array(words));
    fields.insert("description".to_owned(), json!(text.trim()));
}

//! The one macro that makes a root type from a spec and a status. `kube-derive` would do most of it, but its `spec` is
//! required, so a single stored object without a spec would end a whole watch.

/// Makes a cluster-scoped custom resource: struct, `kube::Resource`, and (de)serialisation with `apiVersion` and
/// `kind` written always and ignored when read.
macro_rules! resource {
    ($(#[$doc:meta])* $kind:ident, $spec:ty, $status:ty, $group:expr, $version:expr, $plural:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, ::serde::Deserialize)]
        pub struct $kind {
            /// Name, labels, annotations, owners.
            #[serde(default)]
            pub metadata: $crate::k8s::ObjectMeta,
            /// What is wanted.
            #[serde(default)]
            pub spec: $spec,
            /// What is.
            #[serde(default)]
            pub status: Option<$status>,
        }

        impl $kind {
            /// An object with nothing but a name and a spec.
            pub fn new(name: &str, spec: $spec) -> Self {
                let metadata = $crate::k8s::ObjectMeta { name: Some(name.to_owned()), ..Default::default() };
                Self { metadata, spec, status: None }
            }
        }

        impl ::serde::Serialize for $kind {
            fn serialize<S: ::serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                use ::serde::ser::SerializeStruct;
                let Self { metadata, spec, status } = self;
                let mut o = s.serialize_struct(stringify!($kind), 4 + usize::from(status.is_some()))?;
                o.serialize_field("apiVersion", concat!($group, "/", $version))?;
                o.serialize_field("kind", stringify!($kind))?;
                o.serialize_field("metadata", metadata)?;
                o.serialize_field("spec", spec)?;
                if let Some(status) = status {
                    o.serialize_field("status", status)?;
                }
                o.end()
            }
        }

        impl ::kube::Resource for $kind {
            type DynamicType = ();
            type Scope = ::kube::core::ClusterResourceScope;
            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                stringify!($kind).into()
            }
            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }
            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }
            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &$crate::k8s::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut $crate::k8s::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
pub(crate) use resource;

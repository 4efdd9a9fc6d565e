{{/* Name of everything that belongs to the operator. */}}
{{- define "tokenpool.name" -}}
{{- printf "%s-operator" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels of everything in the chart. */}}
{{- define "tokenpool.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "tokenpool.selector" . }}
{{- end -}}

{{/* Labels that select the operator's pods. */}}
{{- define "tokenpool.selector" -}}
app.kubernetes.io/name: tokenpool
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: operator
{{- end -}}

{{/* Reference of an image: digest before tag before appVersion. Call with (list $ image). */}}
{{- define "tokenpool.image" -}}
{{- $root := index . 0 -}}{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* What the operator does in the namespaces of pools: no wildcard, no read of Secrets, no escalate. */}}
{{- define "tokenpool.rules" -}}
- apiGroups: [tokenpool.dev]
  resources: [tokenpools]
  verbs: [get, list, watch]
- apiGroups: [tokenpool.dev]
  resources: [tokenpools/status]
  verbs: [update]
# Lets owner references block the owner's deletion where the cluster checks that; no finalizer is ever set.
- apiGroups: [tokenpool.dev]
  resources: [tokenpools/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, list, create, patch]
# The rosters. `watch` so that it may be granted: each pool's router watches its own.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, create, patch]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, create, patch]
# Read so that it may be granted: each pool's router watches the EndpointSlices of its namespace.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [list, create]
{{- end -}}

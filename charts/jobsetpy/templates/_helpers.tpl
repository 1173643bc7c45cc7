{{/* Name in the names and labels of objects, independent of the chart's name. */}}
{{- define "jobset.name" -}}
{{- default "jobset" .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/*
Prefix of all names. Names of releases may have dots or begin with a digit; names of Services may not.
*/}}
{{- define "jobset.fullname" -}}
{{- $name := include "jobset.name" . -}}
{{- $full := .Values.fullnameOverride -}}
{{- if not $full -}}
{{- $full = .Release.Name | replace "." "-" -}}
{{- if not (contains $name $full) -}}
{{- $full = printf "%s-%s" $full $name -}}
{{- end -}}
{{- if not (regexMatch "^[a-z]" $full) -}}
{{- $full = printf "%s-%s" $name $full -}}
{{- end -}}
{{- end -}}
{{- $full | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Name of an object, of at most 63 characters: (list . "webhook-service"). */}}
{{- define "jobset.object" -}}
{{- $suffix := index . 1 -}}
{{- $limit := sub 62 (len $suffix) | int -}}
{{- printf "%s-%s" (include "jobset.fullname" (index . 0) | trunc $limit | trimSuffix "-") $suffix -}}
{{- end -}}

{{/* Name of a webhook configuration: (list . "mutating"). A release for some namespaces has a configuration of its own. */}}
{{- define "jobset.webhookConfiguration" -}}
{{- $suffix := printf "%s-webhook-configuration" (index . 1) -}}
{{- if (index . 0).Values.controller.namespaces -}}
{{- include "jobset.object" (list (index . 0) $suffix) -}}
{{- else -}}
jobset-{{ $suffix }}
{{- end -}}
{{- end -}}

{{- define "jobset.selectorLabels" -}}
app.kubernetes.io/name: {{ include "jobset.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
control-plane: controller-manager
{{- end -}}

{{/* Labels of an object, with further ones: (list . (dict "key" "value")). */}}
{{- define "jobset.labels" -}}
{{- $root := index . 0 -}}
{{- $own := dict
  "app.kubernetes.io/name" (include "jobset.name" $root)
  "app.kubernetes.io/instance" $root.Release.Name
  "app.kubernetes.io/version" ($root.Chart.AppVersion | replace "+" "_" | trunc 63)
  "app.kubernetes.io/managed-by" $root.Release.Service
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63)
-}}
{{- toYaml (merge $own (index . 1) $root.Values.commonLabels) -}}
{{- end -}}

{{/* Annotations as text; numbers and booleans of a values file, too. */}}
{{- define "jobset.annotations" -}}
{{- range $key, $value := . }}
{{ $key | quote }}: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}
{{- end }}
{{- end -}}

{{/* Pull secrets, each given by its name or as an object with it. */}}
{{- define "jobset.pullSecrets" -}}
{{- range concat .Values.image.pullSecrets .Values.imagePullSecrets }}
- name: {{ if kindIs "string" . }}{{ . }}{{ else }}{{ .name }}{{ end }}
{{- end }}
{{- end -}}

{{/* Values that the chart does not know, a line for each: (list values known prefix). */}}
{{- define "jobset.unknown" -}}
{{- $known := index . 1 -}}
{{- $prefix := index . 2 -}}
{{- range $key, $value := index . 0 }}
{{- if not (hasKey $known $key) }}
  {{ $prefix }}{{ $key }}
{{- else if and (kindIs "map" $value) (kindIs "map" (index $known $key)) }}
{{- include "jobset.unknown" (list $value (index $known $key) (printf "%s%s." $prefix $key)) }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "jobset.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "jobset.object" (list . "controller")) -}}
{{- end -}}

{{/* Reference of an image: (list image defaultRegistry defaultTag). */}}
{{- define "jobset.imageReference" -}}
{{- $image := index . 0 -}}
{{- $registry := $image.registry | default (index . 1) -}}
{{- $reference := $image.repository -}}
{{- if $registry -}}
{{- $reference = printf "%s/%s" $registry $reference -}}
{{- end -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $reference $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $reference ($image.tag | default (index . 2)) -}}
{{- end -}}
{{- end -}}

{{- define "jobset.image" -}}
{{- if not (or .Values.image.registry .Values.image.repository) -}}
{{- fail "image.repository: must be set, since no public registry has the images. After they were pushed (make image), add --set image.registry=REGISTRY; for images that all nodes have, add --set image.repository=jobsetpy-manager" -}}
{{- end -}}
{{- $repository := .Values.image.repository | default "jobsetpy-manager" -}}
{{- include "jobset.imageReference" (list (merge (dict "repository" $repository) .Values.image) "" .Chart.AppVersion) -}}
{{- end -}}

{{- define "jobset.agentImage" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{- include "jobset.imageReference" (list .Values.agent.image .Values.image.registry $tag) -}}
{{- end -}}

{{/* Name of the coscheduler, and prefix of the names of its objects. */}}
{{- define "jobset.coscheduler" -}}
{{- printf "%s-coscheduler" (include "jobset.fullname" . | trunc 35 | trimSuffix "-") -}}
{{- end -}}

{{/* Subject of a binding: the manager's account. */}}
{{- define "jobset.subjects" -}}
subjects:
- kind: ServiceAccount
  name: {{ include "jobset.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}

{{/* Secret with cert-manager's certificate for webhooks. Not that of the managers' own certificates, which has another type. */}}
{{- define "jobset.servingSecret" -}}
{{- include "jobset.object" (list . "webhook-serving-cert") -}}
{{- end -}}

{{/* Checks of combinations of values, which the schema cannot express. */}}
{{- define "jobset.check" -}}
{{- if and (gt (int .Values.controller.replicas) 1) (not .Values.controller.leaderElection.enable) -}}
{{- fail "controller.leaderElection.enable: must be true with more than one of controller.replicas" -}}
{{- end -}}
{{- if gt (int .Values.controller.shards) 1 -}}
{{- if not .Values.controller.leaderElection.enable -}}
{{- fail "controller.leaderElection.enable: must be true with more than one of controller.shards" -}}
{{- end -}}
{{- $replicas := int .Values.controller.replicas -}}
{{- if and $replicas (lt $replicas (int .Values.controller.shards)) -}}
{{- fail "controller.replicas: must be at least controller.shards, or some JobSets would have no manager" -}}
{{- end -}}
{{- end -}}
{{- if and (eq .Values.tls.minVersion "VersionTLS13") .Values.tls.cipherSuites -}}
{{- fail "tls.cipherSuites: must be empty with tls.minVersion VersionTLS13, whose cipher suites cannot be chosen" -}}
{{- end -}}
{{- if and (eq .Values.coscheduling.admission "webhook") (not .Values.webhook.enable) -}}
{{- fail "coscheduling.admission: must not be webhook without webhook.enable" -}}
{{- end -}}
{{- if and .Values.prometheus.enable (not (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1/ServiceMonitor")) -}}
{{- fail "prometheus.enable: the cluster does not have the kind ServiceMonitor (monitoring.coreos.com/v1); install the Prometheus operator first" -}}
{{- end -}}
{{- end -}}

{{/* Namespaces of agents that do not exist, as JSON; none if there is no cluster, as with "helm template". */}}
{{- define "jobset.absentNamespaces" -}}
{{- $absent := list }}
{{- if lookup "v1" "Namespace" "" "default" }}
{{- range .Values.agent.namespaces }}
{{- if not (lookup "v1" "Namespace" "" .) }}
{{- $absent = append $absent . }}
{{- end }}
{{- end }}
{{- end }}
{{- $absent | toJson }}
{{- end }}

{{/* Names. A name of an object has at most 63 characters; ours get up to ten more behind. */}}
{{- define "skerry.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "skerry.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "skerry.sandboxNamespace" -}}
{{- default (printf "%s-sandboxes" (include "skerry.fullname" .)) .Values.sandboxes.namespace -}}
{{- end -}}

{{- define "skerry.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "skerry.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is empty: name the ServiceAccount that is there already, or set serviceAccount.create" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* An image of values with repository, tag and digest: dict "image" … "default" tag. */}}
{{- define "skerry.image" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (default .default .image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "skerry.selector" -}}
app.kubernetes.io/name: {{ include "skerry.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "skerry.labels" -}}
{{ include "skerry.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "skerry.serverSelector" -}}
{{ include "skerry.selector" . }}
app.kubernetes.io/component: server
{{- end -}}

{{- define "skerry.redisSelector" -}}
{{ include "skerry.selector" . }}
app.kubernetes.io/component: redis
{{- end -}}

{{- define "skerry.tlsSecret" -}}
{{- if .Values.tls.certManager.enabled -}}
{{- default (printf "%s-tls" (include "skerry.fullname" .)) .Values.tls.existingSecret -}}
{{- else -}}
{{- .Values.tls.existingSecret -}}
{{- end -}}
{{- end -}}

{{/* Whether a second pod may run beside the first one: on one volume of one node it may not. */}}
{{- define "skerry.shared" -}}
{{- if eq .Values.persistence.accessMode "ReadWriteMany" }}true{{ end -}}
{{- end -}}

{{/* Where the server is reached from inside of the cluster. */}}
{{- define "skerry.url" -}}
{{ if include "skerry.tlsSecret" . }}https{{ else }}http{{ end }}://{{ include "skerry.fullname" . }}.{{ .Release.Namespace }}.svc:{{ .Values.service.port }}
{{- end -}}

{{/* What cannot be told by the schema, each in one sentence. */}}
{{- define "skerry.check" -}}
{{- $most := .Values.replicaCount | int -}}
{{- if .Values.autoscaling.enabled -}}{{- $most = .Values.autoscaling.maxReplicas | int -}}{{- end -}}
{{- if and (gt $most 1) (not (include "skerry.shared" .)) -}}
{{- fail (printf "%d replicas share one volume, which persistence.accessMode %s does not let them: set persistence.accessMode to ReadWriteMany, with a storage class that has it, or run one replica" $most .Values.persistence.accessMode) -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (gt (.Values.autoscaling.minReplicas | int) (.Values.autoscaling.maxReplicas | int)) -}}
{{- fail "autoscaling.minReplicas is greater than autoscaling.maxReplicas" -}}
{{- end -}}
{{- if and (not .Values.redis.deploy) (not .Values.redis.external.existingSecret) -}}
{{- fail "redis.external.existingSecret is empty: name the Secret that has the URL of your Redis, or set redis.deploy for a trial" -}}
{{- end -}}
{{- if and .Values.redis.deploy .Values.redis.external.existingSecret -}}
{{- fail "redis.deploy and redis.external.existingSecret exclude each other: set redis.deploy to false to use your own Redis" -}}
{{- end -}}
{{- if and .Values.redis.deploy (not .Values.networkPolicy.enabled) -}}
{{- fail "networkPolicy.enabled is false, and redis.deploy runs a Redis without a password: every pod of the cluster could make itself an administrator's key; use redis.external, or leave the policies on" -}}
{{- end -}}
{{- if and .Values.extensions.config .Values.extensions.existingSecret -}}
{{- fail "extensions.config and extensions.existingSecret exclude each other" -}}
{{- end -}}
{{- if and .Values.sandboxes.createNamespace (eq (include "skerry.sandboxNamespace" .) .Release.Namespace) -}}
{{- fail "sandboxes.namespace is the release's own, which the chart does not make: set sandboxes.createNamespace to false" -}}
{{- end -}}
{{- if and .Values.tls.certManager.enabled (not .Values.tls.certManager.issuerRef.name) -}}
{{- fail "tls.certManager.issuerRef.name is empty: name the issuer of the certificate" -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.host) -}}
{{- fail "ingress.host is empty: name the host that the Ingress is for" -}}
{{- end -}}
{{- if and .Values.gateway.enabled (not .Values.gateway.parentRefs) -}}
{{- fail "gateway.parentRefs is empty: name the Gateway that the HTTPRoute belongs to" -}}
{{- end -}}
{{- if not (or .Values.apiKey.existingSecret .Values.config.oidc) -}}
{{- fail "apiKey.existingSecret is empty: no client could call the server; make a Secret with a key of your own (kubectl create secret generic NAME --from-literal=key=sk_$(openssl rand -hex 32)) and name it, or set config.oidc" -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled (not (or .Values.metrics.serviceMonitor.keySecret .Values.apiKey.existingSecret)) -}}
{{- fail "metrics.serviceMonitor.keySecret is empty: /metrics wants a key, name the Secret that has one" -}}
{{- end -}}
{{- range $key, $_ := include "skerry.ownConfig" . | fromYaml -}}
{{- if hasKey $.Values.config $key -}}
{{- if kindIs "map" (get $.Values.config $key) -}}
{{- range $inner, $_ := get (include "skerry.ownConfig" $ | fromYaml) $key -}}
{{- if hasKey (get $.Values.config $key) $inner -}}
{{- fail (printf "config.%s.%s is set by the chart: the README says by which value" $key $inner) -}}
{{- end -}}
{{- end -}}
{{- else -}}
{{- fail (printf "config.%s is set by the chart: the README says by which value" $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What the chart says in the server's configuration. */}}
{{- define "skerry.ownConfig" -}}
listen: 0.0.0.0:8080
data: /var/lib/skerry
driver: kubernetes
auth: keys
drain_timeout: {{ .Values.drainSeconds }}s
kubernetes:
  namespace: {{ include "skerry.sandboxNamespace" . }}
  bridge_image: {{ include "skerry.image" (dict "image" .Values.sandboxes.bridge "default" .Chart.AppVersion) }}
  {{- with .Values.sandboxes.imagePullSecrets }}
  image_pull_secrets: {{- range . }}
    - {{ .name }}{{ end }}
  {{- end }}
{{- if .Values.sandboxes.templates }}
templates: /etc/skerry-templates
{{- end }}
{{- if or .Values.extensions.config .Values.extensions.existingSecret }}
extensions: /etc/skerry-extensions/extensions_config.json
{{- end }}
{{- if .Values.keys.authority }}
authority:
  cert: /run/secrets/authority/tls.crt
  key: /run/secrets/authority/tls.key
{{- end }}
{{- if .Values.keys.files }}
secrets:
  dir: /run/secrets/skerry
{{- end }}
{{- if include "skerry.tlsSecret" . }}
tls:
  cert: /run/secrets/tls/tls.crt
  key: /run/secrets/tls/tls.key
{{- end }}
{{- end -}}

{{/* The server's configuration file. Its disks are the cluster's: the quotas of a file system are not there to be set. */}}
{{- define "skerry.config" -}}
{{- $defaults := dict "disk_quota" "off" "allowed_hosts" (list "*") "kubernetes" (dict "image_pull_policy" .Values.sandboxes.pullPolicy) -}}
{{- toYaml (mustMergeOverwrite $defaults (deepCopy .Values.config) (include "skerry.ownConfig" . | fromYaml)) -}}
{{- end -}}

{{/* A probe of the server: dict "path" … "root" …. It answers to the name localhost whatever allowed_hosts says. */}}
{{- define "skerry.probe" -}}
{path: {{ .path }}, port: api, scheme: {{ if include "skerry.tlsSecret" .root }}HTTPS{{ else }}HTTP{{ end }}, httpHeaders: [{name: Host, value: localhost}]}
{{- end -}}

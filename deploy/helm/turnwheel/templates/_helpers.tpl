{{- define "turnwheel.fullname" -}}
{{- if contains "turnwheel" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-turnwheel" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "turnwheel.selector" -}}
app.kubernetes.io/name: turnwheel
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "turnwheel.labels" -}}
{{ include "turnwheel.selector" . }}
app.kubernetes.io/part-of: turnwheel
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "turnwheel.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The deployment and the disruption budget of one role. Arguments: context, role, gateway (whether it serves HTTP). */}}
{{- define "turnwheel.role" -}}
{{- $root := .context -}}
{{- $role := .role -}}
{{- $values := index $root.Values $role -}}
{{- $name := printf "%s-%s" (include "turnwheel.fullname" $root) $role -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  labels:
    {{- include "turnwheel.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ $role }}
spec:
  {{- if not (and (eq $role "worker") $root.Values.keda.enabled) }}
  replicas: {{ $values.replicas }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "turnwheel.selector" $root | nindent 6 }}
      app.kubernetes.io/component: {{ $role }}
  template:
    metadata:
      labels:
        {{- include "turnwheel.labels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ $role }}
      annotations:
        # A changed setting restarts the pods.
        checksum/settings: {{ include (print $root.Template.BasePath "/configmap.yaml") $root | sha256sum }}
        {{- with $values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      # Longer than worker.drain_timeout and the 15 s after it.
      terminationGracePeriodSeconds: {{ $root.Values.terminationGracePeriodSeconds }}
      automountServiceAccountToken: false
      enableServiceLinks: false
      {{- with $root.Values.image.pullSecrets }}
      imagePullSecrets:
        {{- range . }}
        - name: {{ . }}
        {{- end }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 10001
        runAsGroup: 10001
        seccompProfile:
          type: RuntimeDefault
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "turnwheel.selector" $root | nindent 14 }}
              app.kubernetes.io/component: {{ $role }}
      {{- with $values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: {{ $role }}
          image: {{ include "turnwheel.image" $root | quote }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args: [{{ $role }}]
          env:
            - name: TURNWHEEL_CONFIG
              value: /etc/turnwheel/turnwheel.toml
            - name: TURNWHEEL_NATS__USER
              value: {{ $role }}
            - name: TURNWHEEL_NATS__INBOX_PREFIX
              value: _INBOX_{{ $role }}
            - name: TURNWHEEL_METRICS__LISTEN
              value: 0.0.0.0:9464
            {{- if .gateway }}
            - name: TURNWHEEL_GATEWAY__LISTEN
              value: 0.0.0.0:8080
            - name: TURNWHEEL_GATEWAY__GRPC_LISTEN
              value: 0.0.0.0:8081
            {{- end }}
          envFrom:
            - secretRef:
                name: {{ index $root.Values.existingSecrets $role }}
          ports:
            {{- if .gateway }}
            - {name: http, containerPort: 8080}
            - {name: grpc, containerPort: 8081}
            {{- end }}
            - {name: metrics, containerPort: 9464}
          # It listens after NATS and MongoDB have responded once. Their later outage is no reason to restart it.
          startupProbe:
            httpGet: {path: /healthz, port: metrics}
            periodSeconds: 2
            failureThreshold: 60
          livenessProbe:
            httpGet: {path: /healthz, port: metrics}
            periodSeconds: 10
            timeoutSeconds: 3
          {{- if .gateway }}
          readinessProbe:
            httpGet: {path: /readyz, port: metrics}
            periodSeconds: 5
            timeoutSeconds: 3
          {{- end }}
          resources:
            {{- toYaml $values.resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: [ALL]
          volumeMounts:
            - {name: settings, mountPath: /etc/turnwheel, readOnly: true}
            {{- if $root.Values.caConfigMap }}
            - {name: ca, mountPath: /etc/turnwheel-ca, readOnly: true}
            {{- end }}
      volumes:
        - name: settings
          configMap:
            name: {{ include "turnwheel.fullname" $root }}
        {{- with $root.Values.caConfigMap }}
        - name: ca
          configMap:
            name: {{ . }}
        {{- end }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $name }}
  labels:
    {{- include "turnwheel.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ $role }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "turnwheel.selector" $root | nindent 6 }}
      app.kubernetes.io/component: {{ $role }}
{{- end -}}

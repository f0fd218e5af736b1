// What Go programs make of YAML and of message templates: the oracle of the tests. A module of its own, so that a change
// here does not build kube-apiserver anew.
module upriver.invalid/oracle

go 1.26.0

require (
	gopkg.in/yaml.v3 v3.0.1
	sigs.k8s.io/yaml v1.6.0
)

require go.yaml.in/yaml/v2 v2.4.2 // indirect

"""What a sidecar in a pod gets from the API server of its own cluster: its plan and its certificate.

Both end as files, which the rest of the runtime reads as it would without Kubernetes (`plan_path`, `identity_dir`).
Neither is ever waited for by weights: while the API server is away, the last plan and certificate stay in force.

plans          the ConfigMap of the plan, watched
requests       what a certificate request says, and what an answer to it means (pure)
certificates   the member's key, its certificate requests, renewal
provision      both together: what a sidecar still waits for, and what keeps it from being well
"""

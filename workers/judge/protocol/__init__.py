"""The judge's protocol: job lines, clients, bundles and the pipeline of jobs."""

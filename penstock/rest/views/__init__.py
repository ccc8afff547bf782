"""Shows reports as Flink's REST API does, one file per kind of path. A fact that no report has is left out."""

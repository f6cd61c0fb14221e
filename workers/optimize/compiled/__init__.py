"""Models compiled as a whole: Dynamo captures and guards, what is written here rewrites, Inductor compiles the rest."""

module syncgroup.dev/tools/bubble

go 1.26.0

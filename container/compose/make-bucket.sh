#!/bin/sh
# Run by LocalStack once its S3 answers.
exec awslocal s3api create-bucket --bucket results

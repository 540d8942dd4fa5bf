"""Sentence encoders: conversion, tokenizer, BERT, pooling, batches."""

package org.apache.iceberg.rest;

/** The kit's tests of views, those included that it leaves out. */
public class WholeViewCatalogTests extends RESTCompatibilityKitViewCatalogTests {
  @Override
  protected boolean supportsEmptyNamespace() {
    return true;
  }
}
